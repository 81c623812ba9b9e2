-- Reap: take back jobs whose workers went silent. Guarantees: sql/queries/reap.sql.

-- Lock up to `limit` stalled jobs, the most overdue first, and decide what happens to each: `pgjq.lease.judge` in SQL.
--
-- Index: job_lease, from the past to now; then the primary keys, once for each.
create function pgjq.judge_stalled("limit" integer, stale_age double precision) returns table (
    queue_id integer, seq bigint, lease integer, locked_until timestamptz, singleton_key text, queue text, id text,
    stalls integer, attempts smallint, max_attempts smallint, action text, reason text, worker text, payload bytea,
    delay double precision, error text, task text, started_at timestamptz
)
language sql volatile rows 10
set search_path = pg_catalog, pg_temp
as $$
    with late as materialized (
        select j.* from pgjq.job as j
        where
            j.state = 1 and j.locked_until <= pgjq.now()
            and (
                j.locked_until <= pgjq.now() - make_interval(secs => judge_stalled.stale_age)
                or j.expire_at <= pgjq.now()
            )
        -- Jobs of one claim have one deadline; among them the order of enqueueing decides, as elsewhere.
        order by j.locked_until, j.seq
        limit judge_stalled."limit" for update skip locked
    ),

    judged as (
        select
            l.*,
            case
                when l.cancel_requested then 'cancelled'
                when l.stalled + 1 > l.max_stalled then 'failed'
                when l.attempts >= l.max_attempts and not l.requeue_exhausted then 'failed'
                -- Stately: one job of a key may be failing.
                when pgjq.is_stately(l.queue_id) and exists (
                    select from pgjq.job as o
                    where
                        o.queue_id = l.queue_id and coalesce(o.singleton_key, '') = coalesce(l.singleton_key, '')
                        and pgjq.limits_keys(o.queue_id) and pgjq.policy_slot(o.queue_id, o.state) = 2
                ) then 'failed'
                else 'recovered'
            end as action,
            case when l.expire_at <= pgjq.now() then 'expired' else 'lease' end as reason,
            l.stalled + case when l.cancel_requested then 0 else 1 end as stalls
        from late as l
    )

    select
        j.queue_id, j.seq, j.lease, j.locked_until, j.singleton_key, q.name, b.id, j.stalls, j.attempts,
        j.max_attempts, j.action, j.reason, coalesce(w.name, '?'), b.payload,
        pgjq.retry_delay(b.options, j.attempts),
        json_build_object(
            'type', 'Stalled',
            'message',
            case j.reason when 'expired' then 'the attempt took too long' else 'its worker went silent' end
            || ' (worker ' || coalesce(w.name, '?') || ')'
        )::text, b.task, j.started_at
    from judged as j
    inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id
    inner join pgjq.queue as q on j.queue_id = q.id
    left join pgjq.worker as w on j.worker_id = w.id
$$;

-- Publish the events of stalled jobs: first a `stalled` of each, then a `failing` of each that was recovered.
create function pgjq.publish_stalls(
    queues text[], ids text[], stalls integer[], attempts smallint[], actions text[], reasons text[], tasks text[]
) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pgjq.publish(array_agg(e.event order by e.nth, e.n) filter (where e.event is not null))
    from unnest(queues, ids, stalls, attempts, actions, reasons, tasks)
        with ordinality as s (queue, id, stalls, attempts, action, reason, task, n)
    cross join lateral (
        values
        (1, s.n, pgjq.event('stalled', s.queue, s.id, s.attempts, s.stalls, s.action, s.reason, s.task)),
        (2, s.n, case s.action when 'recovered' then pgjq.event('failing', s.queue, s.id, s.attempts, task => s.task) end)
    ) as e (nth, n, event)
$$;

-- Take back up to `limit` jobs whose leases have lapsed, or whose attempts have expired.
--
-- A function, because it must copy failed jobs to dead letter queues, and unblock the next job of each key, in the same
-- transaction and in a later snapshot. Index: the primary keys, once for each stalled job.
create function pgjq.reap("limit" integer, stale_age double precision)
returns table (
    queue text, id text, stalls integer, attempts smallint, max_attempts smallint, action text, reason text,
    worker text, payload bytea, task text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    reaped record;
begin
    with judged as materialized (
        select s.* from pgjq.judge_stalled(reap."limit", reap.stale_age) as s
    ),

    recovered as (
        update pgjq.job as j
        set
            state = 2, ready = v.delay <= 0, run_at = pgjq.now() + make_interval(secs => v.delay), stalled = v.stalls,
            locked_until = null, expire_at = null, worker_id = null
        from judged as v
        where j.seq = v.seq and j.queue_id = v.queue_id and v.action = 'recovered'
    ),

    failed as (
        update pgjq.job as j set stalled = v.stalls
        from judged as v
        where j.seq = v.seq and j.queue_id = v.queue_id and v.action = 'failed'
    ),

    recorded as (
        insert into pgjq.attempt (seq, queue_id, number, worker, started_at, ended_at, outcome, error)
        select
            v.seq, v.queue_id, v.lease, v.worker, v.started_at, pgjq.now(),
            case when v.action = 'cancelled' then 'cancelled' when v.reason = 'expired' then 'expired' else 'stalled' end,
            case when v.action <> 'cancelled' then v.error end
        from judged as v
    ),

    noted as (
        insert into pgjq.progress as p (queue_id, seq, error, stalled_on)
        select v.queue_id, v.seq, v.error, array[v.worker]
        from judged as v
        where v.action <> 'cancelled'
        on conflict (seq, queue_id) do update
            set
                error = excluded.error,
                stalled_on = (p.stalled_on || excluded.stalled_on)[greatest(cardinality(p.stalled_on) - 18, 1):]
    )

    select
        array_agg(v.queue order by v.locked_until, v.seq) as queues,
        array_agg(v.id order by v.locked_until, v.seq) as ids,
        array_agg(v.stalls order by v.locked_until, v.seq) as stalls,
        array_agg(v.attempts order by v.locked_until, v.seq) as attempts,
        array_agg(v.max_attempts order by v.locked_until, v.seq) as max_attempts,
        array_agg(v.action order by v.locked_until, v.seq) as actions,
        array_agg(v.reason order by v.locked_until, v.seq) as reasons,
        array_agg(v.worker order by v.locked_until, v.seq) as workers,
        array_agg(case v.action when 'failed' then v.payload end order by v.locked_until, v.seq) as payloads,
        array_agg(v.task order by v.locked_until, v.seq) as tasks,
        array_agg(v.queue_id) as queue_ids, array_agg(v.seq) as seqs, array_agg(v.lease) as leases,
        array_agg(v.queue_id) filter (where v.action = 'recovered') as recovered_queue_ids,
        array_agg(v.singleton_key) filter (where v.action = 'recovered') as recovered_keys,
        array_agg(v.queue_id) filter (where v.action <> 'recovered') as ended_queue_ids,
        array_agg(v.seq) filter (where v.action <> 'recovered') as ended_seqs,
        array_agg(v.lease) filter (where v.action <> 'recovered') as ended_leases,
        array_agg(4::smallint) filter (where v.action <> 'recovered') as ended_states,
        array_agg(v.error) filter (where v.action <> 'recovered') as ended_errors
    into reaped from judged as v;
    if reaped.ids is null then
        return;
    end if;
    perform pgjq.trim_attempts(reaped.queue_ids, reaped.seqs, reaped.leases);
    perform pgjq.add_stalls(reaped.queues);
    if pgjq.has_subscribers() then
        perform pgjq.publish_stalls(
            reaped.queues, reaped.ids, reaped.stalls, reaped.attempts, reaped.actions, reaped.reasons, reaped.tasks
        );
    end if;
    if reaped.ended_seqs is not null then
        -- Those with a cancel request end as cancelled.
        perform pgjq.end_jobs(
            reaped.ended_queue_ids, reaped.ended_seqs, reaped.ended_leases, reaped.ended_states, null,
            reaped.ended_errors, true, true
        );
    end if;
    perform pgjq.unblock_keys(reaped.recovered_queue_ids, reaped.recovered_keys);
    perform pgjq.wake(q.name) from pgjq.queue as q where q.id = any(reaped.recovered_queue_ids);
    return query
    select s.* from unnest(
        reaped.queues, reaped.ids, reaped.stalls, reaped.attempts, reaped.max_attempts, reaped.actions,
        reaped.reasons, reaped.workers, reaped.payloads, reaped.tasks
    ) as s;
end
$$;
