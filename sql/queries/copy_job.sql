-- Copy the live rows of these jobs.
copy pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, singleton_key) from stdin
