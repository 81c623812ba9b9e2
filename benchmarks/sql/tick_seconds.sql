-- How many jobs the schedules have made, and how many seconds after their first tick the last of them was there.
select count(*), extract(epoch from max(t.at) - min(t.tick))::double precision from pgjq.schedule_tick as t
