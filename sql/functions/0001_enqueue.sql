-- Enqueue: one function for every producer, inside the transaction that calls it.

-- Keep a queue unchanged until this transaction ends.
--
-- Producers share the lock; a transaction that deletes or redefines the queue takes it exclusively. It costs a
-- microsecond and no write. A snapshot that is older than the lock may show a queue that is gone: then this locks the
-- queue's row, which fails as a serialization failure. It does the same if the lock is not free: any login can hold it.
create function pgjq.lock_queue(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_try_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue)) or pgjq.wait_for_queue_lock(queue) then
        if current_setting('transaction_isolation') = 'read committed' then
            return true;
        end if;
    end if;
    return pgjq.lock_queue_row(queue);
end
$$;

-- Wait for the lock of a queue for as long as creating or deleting one takes; return whether it was obtained.
create function pgjq.wait_for_queue_lock(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
    perform pg_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue));
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- Keep a queue unchanged by its row lock, which needs rights on the table: deleting or redefining the queue waits for
-- it, too. It costs a write.
create function pgjq.lock_queue_row(queue text) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
begin
    perform from pgjq.queue as q where q.name = queue for key share;
    return true;
exception when lock_not_available then
    raise exception 'queue % has been locked for 10 s: a transaction that stays open deletes or redefines it', queue
    using errcode = 'lock_not_available', hint = 'pg_locks shows who holds the lock of its row in the table queue';
end
$$;

-- The number of a queue, which its first use creates.
create function pgjq.get_or_create_queue(queue text) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    entered constant boolean := pgjq.lock_queue(queue);
    found_id integer;
begin
    loop
        select q.id into found_id from pgjq.queue as q where q.name = queue;
        if found then
            return found_id;
        end if;
        insert into pgjq.queue (name) values (queue) on conflict (name) do nothing;
    end loop;
end
$$;

-- Seconds before the retry-th retry (1, 2, …) of a job with these options: `pgjq.retry.retry_delay` in SQL.
create function pgjq.retry_delay(options jsonb, retry integer) returns double precision
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case
        when options is null then 0
        when not coalesce((options ->> 'retry_backoff')::boolean, false)
            then coalesce((options ->> 'retry_delay')::double precision, 0)
        else least(
            (options ->> 'retry_delay_max')::double precision,
            3155760000,  -- a century, the longest time
            coalesce(nullif((options ->> 'retry_delay')::double precision, 0), 1)
            * (power(2, least(16, retry)) / 2 + power(2, least(16, retry)) / 2 * random())
        )
    end
$$;

-- Whether options of a job, or of a queue's definition, are within the bounds of `pgjq/options.py`: a duration is 0,
-- where that is allowed, or from a microsecond to a century. Compared as exact numbers, so that every accepted value
-- can be read as double precision and as real: 1e-400 is more than 0, but out of range for both.
create function pgjq.are_valid_options(options jsonb) returns boolean
language sql immutable
return jsonb_typeof(options) = 'object' and not options @? '$.keyvalue() ? (!(
    @.value.type() == "number" && @.value <= 3155760000 && (
        @.key == "heartbeat_seconds" && @.value >= 10
        || (@.key == "expire_in_seconds" || @.key == "retention_seconds") && @.value >= 1
        || (@.key == "retry_delay" || @.key == "retry_delay_max" || @.key == "delete_after_seconds")
            && (@.value == 0 || @.value >= 0.000001)
    )
    || @.key == "retry_backoff" && @.value.type() == "boolean"
    || @.key == "dead_letter" && @.value.type() == "string"
))';

-- Whether headers of a job are within the bounds of `pgjq/options.py`: texts by name, 64 of them and 8 KiB at most.
create function pgjq.are_valid_headers(headers jsonb) returns boolean
language sql immutable
return jsonb_typeof(headers) = 'object' and not headers @? '$.keyvalue() ? (@.value.type() != "string" || @.key == "")'
and (
    select count(*) <= 64 and coalesce(sum(octet_length(h.key) + octet_length(h.value)), 0) <= 8192
    from jsonb_each_text(case when jsonb_typeof(headers) = 'object' then headers else '{}' end) as h
);

-- Return the name of a task if it may be one, else null: `pgjq.job.is_task_name` in SQL.
create function pgjq.valid_task_name(name text) returns text
language sql immutable
return case when length(name) between 1 and 128 and name !~ '[\u0001-\u001f\u007f-\u009f]' then name end;

-- Whether a job's id and settings are within the bounds of `pgjq/options.py`. Claims, reapers and pruning compute with
-- the times of every job: one invalid time would fail them all.
--
-- Not a constraint of the tables, because PostgreSQL prepares each constraint for every statement, and a single enqueue
-- took half as long again. `pgjq.fail_invalid_jobs` handles rows that were written in another way.
create function pgjq.is_valid_job(id text, settings jsonb) returns boolean
language sql stable
return length(id) between 1 and 512 and (
    settings is null or (
        coalesce((settings ->> 'result_ttl')::double precision between 1e-6 and 3155760000, true)
        and coalesce((settings ->> 'delay')::double precision between 0 and 3155760000, true)
        and coalesce(
            (settings ->> 'run_at')::timestamptz
            between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00', true
        )
        and coalesce((settings ->> 'priority')::integer between -32767 and 32767, true)
        and coalesce((settings ->> 'max_attempts')::integer between 1 and 32767, true)
        and coalesce((settings ->> 'singleton_seconds')::double precision between 1 and 3155760000, true)
        and coalesce(length(settings ->> 'singleton_key') between 1 and 512, true)
        and coalesce(
            jsonb_typeof(settings -> 'options') = 'null' or pgjq.are_valid_options(settings -> 'options'), true
        )
        and coalesce(pgjq.valid_task_name(settings ->> 'task') is not null or settings ->> 'task' is null, true)
        and coalesce(
            jsonb_typeof(settings -> 'headers') = 'null' or pgjq.are_valid_headers(settings -> 'headers'), true
        )
    )
);

-- Remove a body if it has no job. It waits for a writer that may be about to commit one: after the lock, one snapshot
-- shows the job in one of the two tables, or there is none. A snapshot as old as the caller's transaction cannot tell.
create function pgjq.remove_orphan_body(in_queue integer, holder bigint) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '10s'  -- any login can hold the lock
as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'could not serialize access due to a write of many jobs'
        using errcode = 'serialization_failure';
    end if;
    begin
        perform pg_advisory_xact_lock(hashtext('pgjq.write'), in_queue);
        raise exception using errcode = 'PJ001';
    exception
        when sqlstate 'PJ001' then
            null; -- The end of the block releases the lock: no writer waits for the rest of the caller's transaction.
        when lock_not_available then
            raise exception 'an id may be taken by a write of many jobs that has been open for 10 s'
            using errcode = 'lock_not_available', hint = 'pg_locks shows who holds its advisory lock';
    end;
    delete from pgjq.body as b
    where
        b.seq = holder and b.queue_id = in_queue
        and not exists (select from pgjq.job as j where j.seq = holder and j.queue_id = in_queue)
        and not exists (select from pgjq.done as d where d.seq = holder and d.queue_id = in_queue);
end
$$;

-- Check a taken id, and free it if its job is over. Returns no row if the id is free now, else why it is not.
--
-- Finishing moves a job from `job` to `done` in one commit. This reads `job` first and `done` in a later snapshot, so
-- it sees one of the two. If it sees neither, `retry` requeued the job in between, and the next round sees it; or a
-- bulk write is about to commit it, or died before (sql/functions/0001_stage.sql).
-- Concurrent callers that free the same id wait for the lock of its `done` row, and all but one find it superseded; so
-- does a `retry` that comes too late. `done` is locked before `body` here, as in delete and prune.
create function pgjq.free_id(in_queue integer, wanted text, enqueue_failed boolean)
returns table (status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off  -- a session keeps plans that it made when the tables were small
as $$
declare
    holder bigint;
    ended pgjq.done;
begin
    loop
        select b.seq into holder from pgjq.body as b where b.queue_id = in_queue and b.id = wanted and not b.superseded;
        if not found then
            return;
        end if;
        return query
        select 'duplicate', j.state, null::bytea from pgjq.job as j where j.seq = holder and j.queue_id = in_queue;
        if found then
            return;
        end if;
        select d.* into ended from pgjq.done as d where d.seq = holder and d.queue_id = in_queue;
        if found then
            if ended.state = 3 and ended.expires_at > pgjq.now() then
                return query select 'completed', ended.state, ended.result;
                return;
            end if;
            -- In strict order a failed job keeps its id, and blocks its key, until it is retried or deleted.
            if ended.state = 4 and (
                (in_queue & 7) = 5 or (ended.expires_at > pgjq.now() and not enqueue_failed)
            ) then
                return query select 'duplicate', ended.state, null::bytea;
                return;
            end if;
            update pgjq.done as d set superseded = true
            where d.seq = holder and d.queue_id = in_queue and not d.superseded;
            if found then
                update pgjq.body as b set superseded = true where b.seq = holder and b.queue_id = in_queue;
                return;
            end if;
        else
            perform pgjq.remove_orphan_body(in_queue, holder);
        end if;
    end loop;
end
$$;

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
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
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

-- Find the jobs of a batch that the queue cannot accept: in strict order without a key, or with a missing dead letter
-- queue. They are returned and not raised, so that the caller's transaction stays usable.
create function pgjq.find_invalid_jobs(here integer, common jsonb, own jsonb[], ids text[])
returns table (n bigint, status text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select w.n, w.status
    from unnest(ids, own) with ordinality as g (id, own, n)
    cross join lateral (select common || coalesce(g.own, '{}') as s) as j
    cross join lateral (
        select g.n, case
            when (here & 7) = 5 and j.s ->> 'singleton_key' is null then 'needs_key'
            when not exists (select from pgjq.queue as q where q.name = j.s -> 'options' ->> 'dead_letter')
                and j.s -> 'options' ->> 'dead_letter' is not null then 'no_dead_letter'
        end as status
    ) as w
    where w.status is not null
$$;

-- Add one job that a policy or a time slot may refuse; return why it was not added.
--
-- All of it runs in a block that is rolled back if the job is refused: an id that was freed for it is then taken again.
-- It waits for a concurrent job with the same key or id, and the next round sees its result. With a snapshot as old as
-- the caller's transaction no round would: there the conflict is a serialization failure.
create function pgjq.add_limited_job(
    queue text, here integer, given bigint, job_id text, job_payload bytea, settings jsonb
) returns table (status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    job_key constant text := coalesce(settings ->> 'singleton_key', '');
    slot record;
    refused smallint;
    plain jsonb := settings - '{singleton_seconds,singleton_next_slot}'::text[] || '{"checked": true}';
begin
    loop
        refused := null;
        begin
            return query
            select f.status, f.state, f.result
            from pgjq.free_id(here, job_id, coalesce(settings ->> 'on_failed', 'enqueue') = 'enqueue') as f;
            if found then
                return;
            end if;
            select j.state into refused from pgjq.job as j
            where
                j.queue_id = here and coalesce(j.singleton_key, '') = job_key and (j.queue_id & 7) > 0
                and pgjq.policy_slot(j.queue_id, j.state) = pgjq.policy_slot(here, 0::smallint)
            limit 1;
            if refused is null and settings ->> 'singleton_seconds' is not null then
                slot := pgjq.take_time_slot(
                    here, job_key, (settings ->> 'singleton_seconds')::double precision,
                    coalesce((settings ->> 'singleton_next_slot')::boolean, false), given
                );
                refused := case when slot.begins_at is null then slot.holder_state end;
                if slot.begins_at > pgjq.now() then
                    plain := plain || jsonb_build_object('run_at', greatest(
                        slot.begins_at, coalesce(
                            (settings ->> 'run_at')::timestamptz,
                            pgjq.now() + make_interval(secs => (settings ->> 'delay')::double precision)
                        )
                    ));
                end if;
            end if;
            if refused is null then
                perform from pgjq.add_jobs(queue, array[job_id], array[job_payload], plain, null, array[given]);
                if not found then
                    return;
                end if;
            end if;
            raise unique_violation;
        exception when unique_violation then
            if refused is not null then
                return query select 'duplicate', refused, null::bytea;
                return;
            end if;
            if current_setting('transaction_isolation') <> 'read committed' then
                raise exception 'could not serialize access: another job took the place of this one''s key'
                using errcode = 'serialization_failure';
            end if;
        end;
    end loop;
end
$$;

-- Add a batch of jobs; return those that were not added, and why. Position counts from 1.
--
-- `common` holds the settings of every job, `own` those in which a job differs: priority, run_at or delay, result_ttl,
-- max_attempts, singleton_key, on_failed, awaited, task, headers, and under `options` the job's own options. `seqs` are
-- numbers drawn before, if one call needs several batches; else they are drawn here, in the order of the arrays. A job
-- inherits here the options of the queue's definition that it does not set, and keeps them; with `backoff`, it is
-- retried with backoff if neither sets that.
--
-- Rows are inserted in the order of their ids. Two callers with ids in common therefore wait for each other in the same
-- order and cannot deadlock; unsorted, half of such calls failed. The insert waits for a transaction in flight that
-- inserts the same id: the id is taken if it commits, and free if not.
create function pgjq.add_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null
) returns table (n bigint, status text, state smallint, result bytea)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    entered constant boolean := pgjq.lock_queue(queue);
    here integer := (select q.id from pgjq.queue as q where q.name = queue);
    at constant timestamptz := pgjq.now();
    inherited constant jsonb := (select q.options from pgjq.queue as q where q.id = here);
    drawn constant bigint[] := coalesce(
        seqs, array(select nextval('pgjq.job_seq') from generate_series(1, cardinality(ids)))
    );
    added text[];
    tasks text[];
    taken record;
begin
    if (here & 7) = 5 or common -> 'options' ? 'dead_letter' or own is not null then
        return query select w.n, w.status, null::smallint, null::bytea from pgjq.find_invalid_jobs(here, common, own, ids) as w;
        if found then
            return;
        end if;
    end if;
    here := coalesce(here, pgjq.get_or_create_queue(queue));
    if not common ? 'checked' and (
        (here & 7) in (1, 3, 4) or common ->> 'singleton_seconds' is not null
        or exists (select from unnest(own) as o (s) where o.s ->> 'singleton_seconds' is not null)
    ) then
        return query
        select g.n, e.status, e.state, e.result
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
        cross join lateral pgjq.add_limited_job(
            queue, here, g.seq, g.id, g.payload, common || coalesce(g.own, '{}')
        ) as e
        order by g.n;
        return;
    end if;

    with given as materialized (
        select
            g.seq, g.n, g.id, g.payload,
            case when g.own is null then common else common || g.own end as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
    ),

    new as (
        insert into pgjq.body (seq, created_at, queue_id, id, payload, options, source, task, headers)
        select
            g.seq, at, here, g.id, g.payload,
            case
                when g.s ->> 'backoff' = 'true' then '{"retry_backoff": true}' || coalesce(inherited - 'retry_limit', '{}')
                    || coalesce(nullif(g.s -> 'options', 'null'), '{}')
                when inherited is null then g.s -> 'options'
                else nullif((inherited - 'retry_limit') || coalesce(nullif(g.s -> 'options', 'null'), '{}'), '{}')
            end,
            g.s -> 'source', g.s ->> 'task', nullif(g.s -> 'headers', 'null')
        from given as g order by g.id, g.n
        on conflict (queue_id, id) where not superseded do nothing
        returning seq, id, task
    ),

    born as (
        insert into pgjq.job (
            seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
        )
        select
            g.seq, here, due.run_at, due.run_at <= at,
            -coalesce((g.s ->> 'priority')::smallint, 0),
            coalesce((g.s ->> 'max_attempts')::smallint, (inherited ->> 'retry_limit')::smallint + 1, 3),
            coalesce((g.s ->> 'result_ttl')::double precision, 3600),
            coalesce(
                (g.s -> 'options' ->> 'delete_after_seconds')::real, (inherited ->> 'delete_after_seconds')::real,
                604800
            ),
            coalesce((g.s ->> 'awaited')::boolean, false), g.s ->> 'singleton_key'
        from given as g
        inner join new using (seq)
        cross join lateral (
            select coalesce(
                (g.s ->> 'run_at')::timestamptz,
                at + make_interval(secs => coalesce((g.s ->> 'delay')::double precision, 0))
            ) as run_at
        ) as due
    )

    select array_agg(new.id), array_agg(new.task) into added, tasks from new;

    if cardinality(added) > 0 then
        perform pgjq.wake(queue);
        if pgjq.has_subscribers() then
            perform pgjq.publish(array_agg(pgjq.event('queued', queue, a.id, 0, task => a.task)))
            from unnest(added, tasks) as a (id, task);
        end if;
    end if;
    if cardinality(added) = cardinality(ids) then
        return;
    end if;

    -- The others, again in the order of their ids. Each freed id is enqueued by its own call, in its own place.
    for taken in
        select g.n, g.seq, g.id, g.payload, g.own, common || coalesce(g.own, '{}') as s
        from unnest(drawn, ids, payloads, own) with ordinality as g (seq, id, payload, own, n)
        left join (
            select a.id, min(f.n) as n
            from unnest(added) as a (id) inner join unnest(ids) with ordinality as f (id, n) using (id)
            group by a.id
        ) as first using (id, n)
        where first.id is null
        order by g.id, g.n
    loop
        loop
            return query
            select taken.n, f.status, f.state, f.result
            from pgjq.free_id(here, taken.id, coalesce(taken.s ->> 'on_failed', 'enqueue') = 'enqueue') as f;
            exit when found;
            perform from pgjq.add_jobs(
                queue, array[taken.id], array[taken.payload], common,
                case when taken.own is not null then array[taken.own] end, array[taken.seq]
            );
            exit when not found;
        end loop;
    end loop;
end
$$;

-- The same for every producer: removes the settings that only pgjq itself may set, and draws the numbers, or uses those
-- that this transaction has reserved. A number chosen by the caller could belong to another producer, whose jobs it
-- would keep out, or come before all others. With `numbered`, the added jobs are returned as well, with their numbers.
create function pgjq.enqueue_jobs(
    queue text, ids text[], payloads bytea[], common jsonb default '{}', own jsonb[] default null,
    seqs bigint[] default null, numbered boolean default false
) returns table (n bigint, status text, state smallint, result bytea, seq bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    drawn bigint[] := seqs;
begin
    if seqs is not null and not exists (
        select from pgjq.reservation as r
        where
            r.xid = pg_current_xact_id_if_assigned()
            and r.seqs @> (select range_agg(int8range(s.seq, s.seq, '[]')) from unnest(enqueue_jobs.seqs) as s (seq))
    ) then
        raise exception 'seqs must be numbers that this transaction has reserved' using errcode = 'check_violation';
    end if;
    if numbered then
        drawn := coalesce(drawn, array(select nextval('pgjq.job_seq') from generate_series(1, cardinality(ids))));
    end if;
    if (
        not pgjq.is_valid_job('common', common)
        or exists (select from unnest(ids, own) as g (id, own) where not pgjq.is_valid_job(g.id, g.own))
    ) then
        raise exception 'a job has an id or settings that cannot be' using errcode = 'check_violation';
    end if;
    return query
    with refused as materialized (
        select e.n, e.status, e.state, e.result
        from pgjq.add_jobs(
            queue, ids, payloads, common - '{source,checked}'::text[],
            case when own is not null then
                array(select o.s - '{source,checked}'::text[] from unnest(own) with ordinality as o (s, n) order by o.n)
            end, drawn
        ) as e
    )

    select r.n, r.status, r.state, r.result, null::bigint from refused as r
    union all
    select g.n, 'queued', null, null, g.seq
    from unnest(drawn) with ordinality as g (seq, n)
    where numbered and g.n not in (select r.n from refused as r);
end
$$;

-- Draw numbers for jobs that are about to be enqueued; also return the properties of their queue. For a caller that may
-- COPY the jobs itself, and does (`copying`), the numbers are not recorded in `reserved`.
create function pgjq.reserve_numbers(
    queue text, count integer, copying boolean default false,
    out queue_id integer, out at text, out options text, out seqs bigint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    queue_id := pgjq.get_or_create_queue(queue);
    at := pgjq.now()::text;
    options := (select q.options::text from pgjq.queue as q where q.id = queue_id);
    seqs := array(select nextval('pgjq.job_seq') from generate_series(1, count));
    if count > 0 and (not copying or (queue_id & 7) > 0) then
        insert into pgjq.reservation (seqs) select range_agg(int8range(s.seq, s.seq, '[]')) from unnest(seqs) as s (seq);
        perform pgjq.delete_old_reservations();
    end if;
end
$$;

-- Delete reservations of ended transactions, without waiting for a lock.
create function pgjq.delete_old_reservations() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') = 'read committed' then
        delete from pgjq.reservation as r where r.ctid = any(array(
            select o.ctid from pgjq.reservation as o
            where o.xid < pg_snapshot_xmin(pg_current_snapshot())
            for update skip locked
        ));
    end if;
end
$$;

-- Add one job, if its id is free at first sight and no policy may refuse it, and return its number. If that is null,
-- `enqueue_jobs` finds out why.
--
-- Most callers enqueue single jobs, and wait for the call. Plain values instead of arrays let PL/pgSQL keep its plans,
-- and a number instead of a set spares the caller's statement a function scan: half the time of a batch of one.
create function pgjq.enqueue_job(queue text, job_id text, job_payload bytea, settings jsonb) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    here integer;
    at constant timestamptz := pgjq.now();
    due constant timestamptz := coalesce(
        (settings ->> 'run_at')::timestamptz,
        at + make_interval(secs => coalesce((settings ->> 'delay')::double precision, 0))
    );
    -- Inlined `pgjq.lock_queue`.
    entered constant boolean := pg_try_advisory_xact_lock_shared(hashtext('pgjq.queue'), hashtext(queue));
    inherited jsonb;
    given bigint;
begin
    if not pgjq.is_valid_job(job_id, settings) then
        raise exception 'a job has an id or settings that cannot be' using errcode = 'check_violation';
    end if;
    if not entered or current_setting('transaction_isolation') <> 'read committed' then
        perform pgjq.lock_queue(queue);
    end if;
    select q.id, q.options into here, inherited from pgjq.queue as q where q.name = queue;
    if (
        (here & 7) > 0 and ((here & 7) in (1, 3, 4) or settings ->> 'singleton_key' is null)
        or settings ? 'singleton_seconds' or settings -> 'options' ? 'dead_letter'
    ) then
        return null;
    end if;
    if here is null then
        here := pgjq.get_or_create_queue(queue);
    end if;
    if settings ->> 'backoff' = 'true' then
        inherited := '{"retry_backoff": true}' || coalesce(inherited, '{}');
    end if;
    insert into pgjq.body (seq, created_at, queue_id, id, payload, options, task, headers)
    values (
        nextval('pgjq.job_seq'), at, here, job_id, job_payload,
        case when inherited is null then settings -> 'options'
            else nullif((inherited - 'retry_limit') || coalesce(settings -> 'options', '{}'), '{}') end,
        settings ->> 'task', settings -> 'headers'
    )
    on conflict (queue_id, id) where not superseded do nothing
    returning seq into given;
    if given is null then
        return null;
    end if;
    insert into pgjq.job (
        seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, awaited, singleton_key
    )
    values (
        given, here, due, due <= at,
        -coalesce((settings ->> 'priority')::smallint, 0),
        coalesce((settings ->> 'max_attempts')::smallint, (inherited ->> 'retry_limit')::smallint + 1, 3),
        coalesce((settings ->> 'result_ttl')::double precision, 3600),
        coalesce(
            (settings -> 'options' ->> 'delete_after_seconds')::real, (inherited ->> 'delete_after_seconds')::real,
            604800
        ),
        coalesce((settings ->> 'awaited')::boolean, false), settings ->> 'singleton_key'
    );
    perform pgjq.wake(queue);
    if pgjq.has_subscribers() then
        perform pgjq.publish(array[pgjq.event('queued', queue, job_id, 0, task => settings ->> 'task')]);
    end if;
    return given;
end
$$;

-- Enqueue one job from SQL: select pgjq.enqueue('mail', '{"to": "ann"}', id => 'welcome-7');
-- A payload with a text under `task` names a task: select pgjq.enqueue('mail', '{"task": "receipt", "args": [7]}');
create function pgjq.enqueue(
    queue text, payload jsonb, id text default null, priority integer default 0, run_at timestamptz default null,
    delay double precision default null, result_ttl double precision default null, max_attempts integer default null,
    singleton_key text default null, singleton_seconds double precision default null,
    singleton_next_slot boolean default false, dead_letter text default null, headers jsonb default null,
    out job_id text, out status text, out existing_state text, out result bytea
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    answer record;
begin
    if queue is null or queue = '' or length(queue) > 128 or queue ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception 'a queue''s name must have 1 to 128 characters, and no control characters'
        using errcode = 'check_violation';
    end if;
    job_id := coalesce(id, gen_random_uuid()::text);
    if job_id = '' or length(job_id) > 512 then
        raise exception 'a job''s id must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if payload is null then
        raise exception 'payload must not be null; JSON''s null is ''null''::jsonb' using errcode = 'check_violation';
    end if;
    if singleton_key = '' or length(singleton_key) > 512 then
        raise exception 'singleton_key must have 1 to 512 characters' using errcode = 'check_violation';
    end if;
    if run_at is not null and delay is not null then
        raise exception 'pass run_at or delay, not both' using errcode = 'check_violation';
    end if;
    -- NaN is greater than any number in PostgreSQL, so it fails the upper bounds, as infinity does.
    if delay < 0 or delay > 1.7e308 or result_ttl <= 0 or result_ttl > 1.7e308 then
        raise exception 'delay must be at least 0, result_ttl more than 0, both finite' using errcode = 'check_violation';
    end if;
    if max_attempts not between 1 and 32767 or priority not between -32767 and 32767 then
        raise exception 'max_attempts must be between 1 and 32767, priority between -32767 and 32767'
        using errcode = 'check_violation';
    end if;
    if run_at not between '0002-01-01 00:00:00+00' and '9998-12-31 23:59:59.999999+00' then
        raise exception 'run_at must be between the years 2 and 9998' using errcode = 'check_violation';
    end if;
    if singleton_seconds < 1 or singleton_seconds > 1.7e308 then
        raise exception 'singleton_seconds must be at least 1, and finite' using errcode = 'check_violation';
    end if;
    if dead_letter = queue then
        raise exception 'a queue cannot be its own dead letter' using errcode = 'check_violation';
    end if;
    if not pgjq.are_valid_headers(headers) then
        raise exception 'headers must be an object with texts, 64 of them and 8192 bytes at most'
        using errcode = 'check_violation';
    end if;
    -- As for Python's callers, a century is the longest time and a microsecond the shortest.
    if delay > 3155760000 then
        delay := 3155760000;
    end if;
    if result_ttl is not null then
        result_ttl := least(greatest(result_ttl, 1e-6), 3155760000);
    end if;
    if singleton_seconds > 3155760000 then
        singleton_seconds := 3155760000;
    end if;
    select e.status, e.state, e.result into answer
    from pgjq.add_jobs(
        queue, array[job_id], array[convert_to(payload::text, 'UTF8')], jsonb_strip_nulls(jsonb_build_object(
            'priority', priority, 'run_at', run_at, 'delay', delay, 'result_ttl', result_ttl,
            'max_attempts', max_attempts, 'singleton_key', singleton_key,
            'singleton_seconds', singleton_seconds, 'singleton_next_slot', nullif(singleton_next_slot, false),
            'options', case when dead_letter is not null then jsonb_build_object('dead_letter', dead_letter) end,
            'task', case when jsonb_typeof(payload -> 'task') = 'string'
                then pgjq.valid_task_name(payload ->> 'task') end,
            'headers', nullif(headers, '{}')
        ))
    ) as e;
    if answer.status = 'needs_key' then
        raise exception 'queue % is in strict order: every job needs a singleton_key', queue
        using errcode = 'check_violation';
    end if;
    if answer.status = 'no_dead_letter' then
        raise exception 'there is no queue % to be a dead letter', dead_letter using errcode = 'foreign_key_violation';
    end if;
    status := coalesce(answer.status, 'queued');
    existing_state := (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[answer.state + 1];
    result := answer.result;
end
$$;
