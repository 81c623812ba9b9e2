-- Copy the bodies of jobs with generated ids, which cannot be taken.
copy pgjq.body (seq, queue_id, id, payload, created_at, options, task, headers) from stdin
