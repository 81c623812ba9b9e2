-- Start a sample without schedules and jobs.
truncate pgjq.schedule, pgjq.schedule_tick, pgjq.body, pgjq.job, pgjq.done, pgjq.progress
