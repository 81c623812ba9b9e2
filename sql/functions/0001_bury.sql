-- Dead letters: where jobs go that have failed for good, and how they come back.

-- Copy jobs that have just failed to the dead letter queues that they name, if they do.
--
-- A copy keeps the payload, key, priority and time to live, and how the original was to be retried and kept; deadlines
-- of an attempt, and a dead letter of its own, are those of the queue that it comes into. It is enqueued like any other
-- job, in the transaction in which the original fails: what that queue's policy refuses is not copied. A queue in
-- strict order gets the original's id as key where there was none.
create function pgjq.bury(queue_ids integer[], seqs bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    letter record;
begin
    for letter in
        select
            b.options ->> 'dead_letter' as queue, b.payload, jsonb_strip_nulls(jsonb_build_object(
                'max_attempts', d.max_attempts, 'priority', -d.rank,
                'result_ttl', extract(epoch from d.expires_at - d.finished_at),
                'singleton_key', coalesce(d.singleton_key, case when (t.id & 7) = 5 then b.id end),
                'options', nullif(
                    b.options - '{dead_letter,expire_in_seconds,heartbeat_seconds}'::text[], '{}'
                )
            )) || jsonb_build_object('source', jsonb_build_object(
                'queue', q.name, 'id', b.id, 'attempts', d.attempts, 'error', d.error
            )) as settings
        from unnest(queue_ids, seqs) as f (queue_id, seq)
        inner join pgjq.body as b on b.seq = f.seq and b.queue_id = f.queue_id
        inner join pgjq.done as d on d.seq = f.seq and d.queue_id = f.queue_id
        inner join pgjq.queue as q on q.id = f.queue_id
        left join pgjq.queue as t on t.name = b.options ->> 'dead_letter'
        where b.options ->> 'dead_letter' is not null
        order by 1, f.seq
    loop
        perform from pgjq.add_jobs(
            letter.queue, array[gen_random_uuid()::text], array[letter.payload], letter.settings
        );
    end loop;
end
$$;

-- Send up to `limit` dead letters of a queue back to where they came from, or to another queue, and count them.
--
-- A job whose failed record is still there is retried in its own place, under its own id. Else it is enqueued under its
-- id. A letter that cannot go back, because its id or its place is taken, stays where it is and is not counted, so that
-- it is in nobody's way; one that runs stays, too.
create function pgjq.redrive(queue text, "limit" integer, to_queue text) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    here constant integer := (select q.id from pgjq.queue as q where q.name = queue);
    letter record;
    sent integer := 0;
    back boolean;
begin
    for letter in
        select
            j.seq, j.singleton_key, j.awaited, b.payload, coalesce(to_queue, b.source ->> 'queue') as target, b.source ->> 'id' as id,
            jsonb_strip_nulls(jsonb_build_object(
                'max_attempts', j.max_attempts, 'priority', -j.rank, 'result_ttl', j.result_ttl,
                'singleton_key', j.singleton_key,
                'options', nullif(
                    b.options - '{dead_letter,expire_in_seconds,heartbeat_seconds}'::text[], '{}'
                )
            )) as settings
        from pgjq.job as j
        inner join pgjq.body as b on b.seq = j.seq and b.queue_id = j.queue_id
        where j.queue_id = here and j.state <> 1 and b.source is not null
        order by j.seq
        for update of j skip locked
    loop
        exit when sent >= redrive."limit";
        back := to_queue is null and exists (
            select from pgjq.retry_jobs(letter.target, array[letter.id]) as r where r.became = 'queued'
        );
        if not back then
            back := not exists (
                select from pgjq.add_jobs(letter.target, array[letter.id], array[letter.payload], letter.settings)
            );
        end if;
        if back then
            if letter.awaited then
                perform pgjq.answer_jobs(array[here], array[letter.seq], null);
            end if;
            delete from pgjq.job as j where j.seq = letter.seq and j.queue_id = here;
            delete from pgjq.progress as p where p.seq = letter.seq and p.queue_id = here;
            delete from pgjq.body as b where b.seq = letter.seq and b.queue_id = here;
            perform pgjq.next_turn(array[here], array[letter.singleton_key]);
            sent := sent + 1;
        end if;
    end loop;
    return sent;
end
$$;
