-- Dead letters: copy failed jobs to another queue, and send them back.

-- Copy jobs that have just failed to their dead letter queues, if they name one.
--
-- A copy keeps the payload, key, priority and time to live, and the retry and retention options; deadlines of an
-- attempt and a further dead letter are those of its new queue. It is enqueued like any other job, in the transaction
-- in which the original fails: a copy that the queue's policy refuses is not made. A queue in strict order gets the
-- original's id as key if there was none.
create function pgjq.copy_dead_letters(queue_ids integer[], seqs bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    letter record;
begin
    for letter in
        select
            b.options ->> 'dead_letter' as queue, b.payload, jsonb_strip_nulls(jsonb_build_object(
                'max_attempts', d.max_attempts, 'priority', -d.rank,
                'result_ttl', extract(epoch from d.expires_at - d.finished_at),
                'singleton_key', coalesce(d.singleton_key, case when pgjq.is_strict(t.id) then b.id end),
                'options', nullif(
                    b.options - '{dead_letter,expire_in_seconds,heartbeat_seconds}'::text[], '{}'
                ), 'task', b.task, 'headers', b.headers
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

-- Send up to `limit` dead letters of a queue back to their queues, or to another queue, and count them.
--
-- A job whose failed record still exists is retried in its own place, under its own id. Else it is enqueued under its
-- id. A dead letter whose id or slot is taken stays and is not counted, so that it blocks no other; a running one
-- stays, too.
create function pgjq.redrive(queue text, "limit" integer, to_queue text) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    this_queue constant integer := (select q.id from pgjq.queue as q where q.name = queue);
    letter record;
    sent integer := 0;
    back boolean;
begin
    for letter in
        select
            j.seq, j.singleton_key, j.awaited, b.payload, coalesce(to_queue, b.source ->> 'queue') as target,
            b.source ->> 'id' as id,
            jsonb_strip_nulls(jsonb_build_object(
                'max_attempts', j.max_attempts, 'priority', -j.rank, 'result_ttl', j.result_ttl,
                'singleton_key', j.singleton_key,
                'options', nullif(
                    b.options - '{dead_letter,expire_in_seconds,heartbeat_seconds}'::text[], '{}'
                ), 'task', b.task, 'headers', b.headers
            )) as settings
        from pgjq.job as j
        inner join pgjq.body as b on b.seq = j.seq and b.queue_id = j.queue_id
        where j.queue_id = this_queue and j.state <> 1 and b.source is not null
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
                perform pgjq.notify_waiters_of_jobs(array[this_queue], array[letter.seq], null);
            end if;
            delete from pgjq.job as j where j.seq = letter.seq and j.queue_id = this_queue;
            perform pgjq.delete_bodies(array[this_queue], array[letter.seq]);
            perform pgjq.unblock_keys(array[this_queue], array[letter.singleton_key]);
            sent := sent + 1;
        end if;
    end loop;
    return sent;
end
$$;
