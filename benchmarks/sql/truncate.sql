-- Start a sample with empty tables, so that every round finds the same.
truncate pgjq.body, pgjq.job, pgjq.done, pgjq.progress
