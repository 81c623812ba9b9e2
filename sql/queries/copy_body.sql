-- Copy the bodies of jobs whose ids were just made and cannot be taken.
copy pgjq.body (seq, queue_id, id, payload, created_at, options) from stdin
