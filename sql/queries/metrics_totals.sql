-- Metrics: how many jobs have ended and stalled, by queue, task and outcome. See sql/functions/0001_totals.sql.
select t.queue, t.task, t.outcome, t.jobs from pgjq.totals() as t
