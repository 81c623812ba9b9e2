-- Make the jobs of due schedules. Guarantees: sql/functions/0001_schedule_ticks.sql.
select t.schedule, t.at, t.ticks from pgjq.tick(:plans::text::jsonb) as t
