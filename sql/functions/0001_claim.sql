-- Claim jobs.
--
-- In functions, because the settings that force their plans then apply to them alone: they neither leak into a caller's
-- transaction nor depend on the session behind a pooler (0001_planner_settings.sql).
--
-- Planning is most of the time of a small claim. So the claim of a queue in the default partition keeps its plan, and
-- is written so that there is one plan (ADR 20): each of its parts can use one index, or the place of a row, and
-- nothing else that is not turned off. Other claims plan every call, because a plan from when a queue was empty may
-- read all of a full one (ADR 11).

-- A claimed job, as its worker needs it.
create type pgjq.claimed_job as (
    queue text, queue_id integer, seq bigint, lease_number integer, rank smallint, id text, payload bytea,
    attempts smallint, max_attempts smallint, created_at timestamptz, lease_seconds real,
    expire_seconds double precision, checkpoint bytea, options jsonb, task text, headers jsonb,
    published bigint, walked bigint
);

-- Make delayed jobs claimable that are now due.
--
-- Jobs that wait for run_at are not in the index that claims walk, so a hundred thousand of them cost a claim nothing.
-- Any number of callers may promote at once; each takes the rows that the others have not locked.
--
-- Index: job_waiting, from the past to now; then the primary key, once for each.
create function pgjq.promote() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
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
--
-- `after_ranks` and `after_seqs` are where to begin in each queue, instead of its head (ADR 21); if there are fewer
-- than `limit` jobs, the claim continues at the head. They count where the claim keeps its plan. `walked` of the answer
-- is the number of index entries of the queue that were read until then, dead ones included.
--
-- Index: job_ready, walked from its head or from that place; of a queue of a million nothing else is read. Then the
-- primary key of body, and ctid, once for each job; and that of progress, if the job was claimed before and may have a
-- checkpoint. The lateral subquery with `offset 0` is not merged into the join, and no condition but ctid is on the
-- updated rows: so no other index of either table can be used.
create function pgjq.claim(
    queues text[], worker integer, "limit" integer, lease double precision, expire double precision,
    max_stalled integer, requeue_exhausted boolean, claim_id bigint default null, after_ranks smallint[] default null,
    after_seqs bigint[] default null
) returns setof pgjq.claimed_job
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    first_rank constant smallint := -32768;
    first_seq constant bigint := -9223372036854775808;
    ready_index constant oid := regclass('pgjq.job_default_queue_id_rank_seq_idx');
    walked_before bigint;
    clock constant timestamptz := pgjq.now();
    has_subscribers constant boolean := pgjq.has_subscribers();
    remaining integer := claim."limit";
    wanted text;
    wanted_id integer;
    from_rank smallint;
    from_seq bigint;
    taken integer;
begin
    perform pgjq.promote() where exists (
        select from pgjq.job as w where not w.ready and not w.blocked and w.state <> 1 and w.run_at <= clock
    );
    for place in 1..cardinality(claim.queues) loop
        exit when remaining <= 0;
        wanted := claim.queues[place];
        select q.id into wanted_id from pgjq.queue as q where q.name = wanted and not q.paused;
        continue when wanted_id is null;
        if wanted_id < 0 or pgjq.is_serial(wanted_id) then
            return query
            select s.* from pgjq.claim_planned(
                wanted, wanted_id, claim.worker, remaining, claim.lease, claim.expire, claim.max_stalled,
                claim.requeue_exhausted, claim.claim_id
            ) as s;
            get diagnostics taken = row_count;
            remaining := remaining - taken;
            continue;
        end if;
        walked_before := pg_stat_get_xact_tuples_returned(ready_index);
        from_rank := coalesce(after_ranks[place], first_rank);
        from_seq := coalesce(after_seqs[place], first_seq);
        loop
            return query
            with head as materialized (
                select h.tid, b.*
                from (
                    select j.ctid as tid, j.seq from pgjq.job_default as j
                    where j.ready and j.queue_id = wanted_id and (j.rank, j.seq) >= (from_rank, from_seq)
                    order by j.queue_id, j.rank, j.seq
                    limit remaining for update skip locked
                ) as h
                cross join lateral (
                    select
                        b.id, b.payload, b.created_at, b.options, b.task, b.headers,
                        coalesce((b.options ->> 'heartbeat_seconds')::double precision, claim.lease) as lease,
                        coalesce((b.options ->> 'expire_in_seconds')::double precision, claim.expire) as expire
                    from pgjq.body_default as b
                    where b.seq = h.seq and b.queue_id = wanted_id
                    offset 0
                ) as b
            ),
            claimed as (
                update pgjq.job_default as j
                set
                    state = 1, ready = false, lease = j.lease + 1, attempts = j.attempts + 1, worker_id = claim.worker,
                    started_at = clock, claim_id = claim.claim_id, max_stalled = claim.max_stalled,
                    requeue_exhausted = claim.requeue_exhausted, lease_seconds = h.lease,
                    expire_at = clock + make_interval(secs => h.expire),
                    locked_until = clock + make_interval(secs => least(h.lease, h.expire))
                from head as h
                where j.ctid = h.tid
                returning
                    j.queue_id, j.seq, j.lease, j.rank, h.id, h.payload, j.attempts, j.max_attempts, h.created_at,
                    j.lease_seconds, h.expire,
                    case when j.lease > 1 then (
                        select progress.checkpoint from pgjq.progress_default as progress
                        where progress.seq = j.seq and progress.queue_id = j.queue_id
                    ) end as checkpoint,
                    h.options, h.task, h.headers
            )
            select
                wanted, p.*,
                case when has_subscribers then (
                    select pgjq.publish(array_agg(pgjq.event('processing', wanted, e.id, e.attempts, task => e.task)))
                    from claimed as e
                ) end,
                pg_stat_get_xact_tuples_returned(ready_index) - walked_before
            from claimed as p;
            get diagnostics taken = row_count;
            remaining := remaining - taken;
            exit when remaining <= 0 or from_seq = first_seq;
            from_rank := first_rank;
            from_seq := first_seq;
        end loop;
    end loop;
end
$$;

-- Claim jobs of a queue with partitions of its own, or whose policy lets one job of a key run at a time; planned for
-- every call. The latter are `picked` first (`pgjq.claim_serial`).
--
-- Index: as `pgjq.claim`. A ctid is unique only within a partition, so the update names the queue as well.
create function pgjq.claim_planned(
    queue text, queue_id integer, worker integer, "limit" integer, lease double precision, expire double precision,
    max_stalled integer, requeue_exhausted boolean, claim_id bigint, picked tid[] default null
) returns setof pgjq.claimed_job
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    clock constant timestamptz := pgjq.now();
    expiry constant timestamptz := clock + make_interval(secs => claim_planned.expire);
    until constant timestamptz := least(clock + make_interval(secs => claim_planned.lease), expiry);
    has_subscribers constant boolean := pgjq.has_subscribers();
    wanted_id constant integer := claim_planned.queue_id;
begin
    if picked is null and pgjq.is_serial(wanted_id) then
        return query
        select s.* from pgjq.claim_serial(
            claim_planned.queue, wanted_id, claim_planned.worker, claim_planned."limit", claim_planned.lease,
            claim_planned.expire, claim_planned.max_stalled, claim_planned.requeue_exhausted, claim_planned.claim_id
        ) as s;
        return;
    end if;
    return query
    with claimed as (
        update pgjq.job as j
        set
            state = 1, ready = false, lease = j.lease + 1, attempts = j.attempts + 1, worker_id = claim_planned.worker,
            started_at = clock, claim_id = claim_planned.claim_id, max_stalled = claim_planned.max_stalled,
            requeue_exhausted = claim_planned.requeue_exhausted,
            lease_seconds = case when b.options is null then claim_planned.lease
                else coalesce((b.options ->> 'heartbeat_seconds')::double precision, claim_planned.lease) end,
            expire_at = case when b.options is null then expiry
                else clock + make_interval(
                    secs => coalesce((b.options ->> 'expire_in_seconds')::double precision, claim_planned.expire)
                ) end,
            locked_until = case when b.options is null then until
                else clock + make_interval(secs => least(
                    coalesce((b.options ->> 'heartbeat_seconds')::double precision, claim_planned.lease),
                    coalesce((b.options ->> 'expire_in_seconds')::double precision, claim_planned.expire)
                )) end
        from pgjq.body as b
        where
            j.queue_id = wanted_id
            and b.seq = j.seq and b.queue_id = wanted_id
            -- The array is computed once; a plain IN (subquery) may run again, and claim more than the limit.
            and j.ctid = any(coalesce(claim_planned.picked, array(
                select head.ctid from pgjq.job as head
                where head.ready and head.queue_id = wanted_id
                order by head.queue_id, head.rank, head.seq
                limit claim_planned."limit" for update skip locked
            )))
        returning
            j.queue_id, j.seq, j.lease, j.rank, b.id, b.payload, j.attempts, j.max_attempts, b.created_at,
            j.lease_seconds, extract(epoch from j.expire_at - j.started_at)::double precision as expire_seconds,
            -- A job that was never claimed before has no checkpoint.
            case when j.lease > 1 then (
                select progress.checkpoint from pgjq.progress
                where progress.seq = j.seq and progress.queue_id = j.queue_id
            ) end as checkpoint,
            b.options, b.task, b.headers
    )
    select
        claim_planned.queue, p.*,
        case when has_subscribers then (
            select pgjq.publish(array_agg(
                pgjq.event('processing', claim_planned.queue, e.id, e.attempts, task => e.task)
            ))
            from claimed as e
        ) end, null::bigint
    from claimed as p;
end
$$;

-- Return the jobs that a claim took and still holds, for a worker that did not get the claim's answer.
--
-- Every claim has a random number, so this finds no job of another claim, even one with the same worker name. A job
-- that was reaped or claimed again meanwhile is not found: its lease belongs to another claim.
--
-- Index: job_lease, all of it: as many rows as there are running jobs. It runs only after an answer was lost.
create function pgjq.find_claimed(claim_id bigint) returns setof pgjq.claimed_job
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select
        q.name, j.queue_id, j.seq, j.lease, j.rank, b.id, b.payload, j.attempts, j.max_attempts, b.created_at,
        j.lease_seconds, extract(epoch from j.expire_at - j.started_at)::double precision, p.checkpoint, b.options,
        b.task, b.headers, null::bigint, null::bigint
    from pgjq.job as j
    inner join pgjq.body as b on b.seq = j.seq and b.queue_id = j.queue_id
    inner join pgjq.queue as q on q.id = j.queue_id
    left join pgjq.progress as p on p.seq = j.seq and p.queue_id = j.queue_id
    where j.state = 1 and j.claim_id = find_claimed.claim_id
$$;
