-- Start a sample of graphile-worker with an empty queue.
truncate graphile_worker._private_jobs
