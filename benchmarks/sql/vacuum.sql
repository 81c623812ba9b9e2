-- Do what autovacuum would do soon, so that it does not do it in the middle of a measurement.
vacuum (analyze) pgjq.queue, pgjq.body, pgjq.job, pgjq.done, pgjq.progress
