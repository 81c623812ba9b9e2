-- The floor of a bulk enqueue: what the live rows cost.
copy pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after) from stdin
