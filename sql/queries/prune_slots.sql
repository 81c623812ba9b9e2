-- Prune time slots that are over.
--
-- Index: slot_ends.
delete from pgjq.slot as s
where s.ends_at <= pgjq.now()
