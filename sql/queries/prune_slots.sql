-- Prune time slots that have ended.
--
-- Index: slot_ends.
delete from pgjq.slot as s
where s.ends_at <= pgjq.now()
