-- Prune time slots that have ended.
--
-- Index: time_slot_ends.
delete from pgjq.time_slot as s
where s.ends_at <= pgjq.now()
