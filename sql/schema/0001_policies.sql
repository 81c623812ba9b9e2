-- Policies of queues: the numbers, and everything that depends on a policy's number.
--
-- A queue's number encodes its policy and where its jobs are stored, and neither ever changes: the last three bits are
-- the policy, and a number below 0 means partitions of its own. Every row of a job has its queue's number, so
-- constraints and indexes know the policy without a column, a trigger or another table, and no INSERT can bypass them.
--
--   number  policy           limits_keys  limits_queued  is_serial  may_lack_slot
--   0       standard         -            -              -          -
--   1       short            yes          yes            -          yes
--   2       singleton        yes          -              yes        -
--   3       stately          yes          yes            yes        yes
--   4       exclusive        yes          yes            -          -
--   5       key_strict_fifo  yes          -              yes        -
--
-- No other file knows a policy's number: they call the functions below. The planner inlines these functions, in
-- statements and in the predicates of indexes alike, so a call costs nothing at run time and a statement that calls one
-- can use the index that does. That takes a single expression, `immutable`, no SET and EXECUTE for every role that
-- plans such a statement. `pgjq.policy.Policy` is the same table in Python; tests compare the two.
create sequence pgjq.queue_seq;

-- The number of a queue's policy.
create function pgjq.policy(queue_id integer) returns integer
language sql immutable parallel safe
return queue_id & 7;

-- Whether a policy has this queue's number.
create function pgjq.has_policy(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) <= 5;

-- Whether the number of a key's jobs is limited in any state.
create function pgjq.limits_keys(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) > 0;

-- Whether another job of the key can keep a job from being enqueued or retried.
create function pgjq.limits_queued(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) in (1, 3, 4);

-- Whether one job of a key runs at a time, and further ones are blocked meanwhile.
create function pgjq.is_serial(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) in (2, 3, 5);

-- Whether a released job may find the slot that it needs taken: another job was enqueued while it ran.
create function pgjq.may_lack_slot(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) in (1, 3);

-- Whether one job of a key may be failing, so that a second one fails for good: stately.
create function pgjq.is_stately(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) = 3;

-- Whether the jobs of a key run in the order of their creation, and a failed one blocks its key: key_strict_fifo.
create function pgjq.is_strict(queue_id integer) returns boolean
language sql immutable parallel safe
return (queue_id & 7) = 5;

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
