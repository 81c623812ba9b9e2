-- Policies of queues.

-- A queue's number encodes its policy and where its jobs are stored, and neither ever changes: the last three bits are
-- the policy (0 standard, 1 short, 2 singleton, 3 stately, 4 exclusive, 5 key_strict_fifo), and a number below 0 means
-- partitions of its own. Every row of a job has its queue's number, so constraints and indexes know the policy without
-- a column, a trigger or another table, and no INSERT can bypass them.
create sequence pgjq.queue_seq;

-- The slot of its key that a job in a state takes, by the policy of its queue: one job per slot; null takes none.
create function pgjq.policy_slot(queue_id integer, state smallint) returns integer
language sql immutable parallel safe
return case queue_id & 7
    when 1 then case when state = 0 then 0 end  -- short: queued
    when 2 then case when state = 1 then 1 end  -- singleton: processing
    when 3 then state                           -- stately: each of them
    when 4 then 0                               -- exclusive: all of them together
    when 5 then case when state > 0 then 1 end  -- key_strict_fifo: processing and failing together
end;
