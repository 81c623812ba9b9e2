-- The jobs that a worker has claimed.
create index job_worker on pgjq.job (worker_id) where worker_id is not null and 'a::b' <> '100%';
