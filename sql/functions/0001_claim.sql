-- Claim jobs.
--
-- In functions, because the settings that force their plans then apply to them alone: they neither leak into a caller's
-- transaction nor depend on the session behind a pooler. With all plans but index scans off, a claim walks job_ready
-- from its head; else the planner reads and sorts the whole queue whenever it expects a short one. Plans are made for
-- every call: a plan from when the queue was empty reads all of a full one (ADR 11).

-- Make delayed jobs claimable that are now due.
--
-- Jobs that wait for run_at are not in the index that claims walk, so a hundred thousand of them cost a claim nothing.
-- Any number of callers may promote at once; each takes the rows that the others have not locked.
--
-- Index: job_waiting, from the past to now; then the primary key, once for each.
create function pgjq.promote() returns void
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
begin
    with due as materialized (
        select w.seq, w.queue_id from pgjq.job as w
        where not w.ready and not w.blocked and w.state <> 1 and w.run_at <= pgjq.now()
        order by w.run_at
        limit 1000 for update skip locked
    )
    update pgjq.job as j set ready = true
    from due
    where j.seq = due.seq and j.queue_id = due.queue_id;
end
$$;

-- Claim up to `limit` due jobs of some queues, in the queues' order, for one worker. Guarantees: sql/queries/claim.sql.
-- Where the policy lets one job of a key run at a time, `pgjq.pick_serial` checks the keys first, and this function
-- calls itself with the `picked` jobs.
--
-- Index: job_ready, walked from its head; of a queue of a million nothing else is read. Then ctid, which is unique only
-- within a partition, so the update names the queue as well.
create function pgjq.claim(
    queues text[], worker integer, "limit" integer, lease double precision, expire double precision,
    max_stalled integer, requeue_exhausted boolean, claim_id bigint default null, picked tid[] default null
) returns table (
    queue text, queue_id integer, seq bigint, lease_number integer, rank smallint, id text, payload bytea,
    attempts smallint, max_attempts smallint, created_at timestamptz, lease_seconds real,
    expire_seconds double precision, checkpoint bytea, options jsonb, task text, headers jsonb,
    published bigint
)
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
#variable_conflict use_column
declare
    clock constant timestamptz := pgjq.now();
    expiry constant timestamptz := clock + make_interval(secs => claim.expire);
    until constant timestamptz := least(clock + make_interval(secs => claim.lease), expiry);
    has_subscribers constant boolean := pgjq.has_subscribers();
    room integer := claim."limit";
    wanted text;
    wanted_id integer;
    taken integer;
begin
    if exists (
        select from pgjq.job as w where not w.ready and not w.blocked and w.state <> 1 and w.run_at <= clock
    ) then
        perform pgjq.promote();
    end if;
    foreach wanted in array claim.queues loop
        wanted_id := (select q.id from pgjq.queue as q where q.name = wanted and not q.paused);
        continue when wanted_id is null;
        if picked is null and (wanted_id & 7) in (2, 3, 5) then
            for n in 1..10 loop
                begin
                    return query
                    select c.* from pgjq.claim(
                        array[wanted], claim.worker, room, claim.lease, claim.expire, claim.max_stalled,
                        claim.requeue_exhausted, claim.claim_id, pgjq.pick_serial(wanted_id, room)
                    ) as c;
                    get diagnostics taken = row_count;
                    room := room - taken;
                    exit;
                exception when unique_violation then
                    -- A concurrent claim took another job of one of these keys at the same moment: repeat.
                    continue;
                end;
            end loop;
            exit when room <= 0;
            continue;
        end if;
        return query
        with claimed as (
            update pgjq.job as j
            set
                state = 1, ready = false, lease = j.lease + 1, attempts = j.attempts + 1, worker_id = claim.worker,
                started_at = clock, claim_id = claim.claim_id, max_stalled = claim.max_stalled,
                requeue_exhausted = claim.requeue_exhausted,
                lease_seconds = case when b.options is null then claim.lease
                    else coalesce((b.options ->> 'heartbeat_seconds')::double precision, claim.lease) end,
                expire_at = case when b.options is null then expiry
                    else clock + make_interval(
                        secs => coalesce((b.options ->> 'expire_in_seconds')::double precision, claim.expire)
                    ) end,
                locked_until = case when b.options is null then until
                    else clock + make_interval(secs => least(
                        coalesce((b.options ->> 'heartbeat_seconds')::double precision, claim.lease),
                        coalesce((b.options ->> 'expire_in_seconds')::double precision, claim.expire)
                    )) end
            from pgjq.body as b
            where
                j.queue_id = wanted_id
                and b.seq = j.seq and b.queue_id = wanted_id
                -- The array is computed once; a plain IN (subquery) may run again, and claim more than the limit.
                and j.ctid = any(coalesce(claim.picked, array(
                    select head.ctid from pgjq.job as head
                    where head.ready and head.queue_id = wanted_id
                    order by head.queue_id, head.rank, head.seq
                    limit room for update skip locked
                )))
            returning
                j.queue_id, j.seq, j.lease, j.rank, b.id, b.payload, j.attempts, j.max_attempts, b.created_at,
                j.lease_seconds, extract(epoch from j.expire_at - j.started_at)::double precision as expire_seconds,
                b.options, b.task, b.headers
        )
        select
            wanted, p.queue_id, p.seq, p.lease, p.rank, p.id, p.payload, p.attempts, p.max_attempts, p.created_at,
            p.lease_seconds, p.expire_seconds,
            -- A job that was never claimed before has no checkpoint.
            case when p.lease > 1 then (
                select progress.checkpoint from pgjq.progress
                where progress.seq = p.seq and progress.queue_id = p.queue_id
            ) end,
            p.options, p.task, p.headers,
            case when has_subscribers then (
                select pgjq.publish(array_agg(pgjq.event('processing', wanted, e.id, e.attempts, task => e.task)))
                from claimed as e
            ) end
        from claimed as p;
        get diagnostics taken = row_count;
        room := room - taken;
        exit when room <= 0;
    end loop;
end
$$;

-- Return the jobs that a claim took and still holds, for a worker that did not get the claim's answer.
--
-- Every claim has a random number, so this finds no job of another claim, even one with the same worker name. A job
-- that was reaped or claimed again meanwhile is not found: its lease belongs to another claim.
--
-- Index: job_lease, all of it: as many rows as there are running jobs. It runs only after an answer was lost.
create function pgjq.find_claimed(claim_id bigint) returns table (
    queue text, queue_id integer, seq bigint, lease_number integer, rank smallint, id text, payload bytea,
    attempts smallint, max_attempts smallint, created_at timestamptz, lease_seconds real,
    expire_seconds double precision, checkpoint bytea, options jsonb, task text, headers jsonb
)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select
        q.name, j.queue_id, j.seq, j.lease, j.rank, b.id, b.payload, j.attempts, j.max_attempts, b.created_at,
        j.lease_seconds, extract(epoch from j.expire_at - j.started_at)::double precision, p.checkpoint, b.options,
        b.task, b.headers
    from pgjq.job as j
    inner join pgjq.body as b on b.seq = j.seq and b.queue_id = j.queue_id
    inner join pgjq.queue as q on q.id = j.queue_id
    left join pgjq.progress as p on p.seq = j.seq and p.queue_id = j.queue_id
    where j.state = 1 and j.claim_id = find_claimed.claim_id
$$;
