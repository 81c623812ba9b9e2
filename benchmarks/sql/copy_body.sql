-- The floor of a bulk enqueue: what identity and payload cost with COPY.
copy pgjq.body (seq, queue_id, id, payload, created_at) from stdin
