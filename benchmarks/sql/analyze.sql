-- Take statistics of what is in the tables now.
analyze pgjq.queue, pgjq.body, pgjq.job, pgjq.done, pgjq.progress
