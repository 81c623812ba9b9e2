-- Time slots of throttled keys.

-- Take the time slot of a throttled job; return its beginning, or null and the state of the job that has the slot.
--
-- Slots are aligned to the epoch, so all callers compute the same ones. The first job has the slot until it ends, even
-- if the job has long been completed; cancelling or deleting the job frees the slot. With `next_slot`, a job that finds
-- the slot taken gets the next one, if that is free, and runs when it begins, or later if its own time is later.
create function pgjq.take_time_slot(
    in_queue integer, slot_key text, seconds double precision, next_slot boolean, taker bigint,
    out begins_at timestamptz, out holder_state smallint
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    length constant interval := make_interval(secs => seconds);
    first constant timestamptz := to_timestamp(
        seconds * floor(extract(epoch from pgjq.now())::double precision / seconds)
    );
    holder bigint;
begin
    for n in 0..case when next_slot then 1 else 0 end loop
        begins_at := first + n * length;
        loop
            insert into pgjq.time_slot (queue_id, key, begins_at, ends_at, seq)
            values (in_queue, slot_key, take_time_slot.begins_at, take_time_slot.begins_at + length, taker)
            on conflict (queue_id, key, begins_at) do nothing;
            if found then
                return;
            end if;
            select s.seq into holder from pgjq.time_slot as s
            where s.queue_id = in_queue and s.key = slot_key and s.begins_at = take_time_slot.begins_at;
            continue when not found;
            -- In a new snapshot: a concurrent transaction that was waited for has committed its job with its slot.
            select coalesce(j.state, d.state) into holder_state
            from (select holder as seq) as h
            left join pgjq.job as j on j.seq = h.seq and j.queue_id = in_queue
            left join pgjq.done as d on d.seq = h.seq and d.queue_id = in_queue and d.state <> 5;
            exit when holder_state is not null;
            update pgjq.time_slot as s set seq = taker
            where s.queue_id = in_queue and s.key = slot_key and s.begins_at = take_time_slot.begins_at and s.seq = holder;
            if found then
                return;
            end if;
        end loop;
    end loop;
    begins_at := null;
end
$$;
