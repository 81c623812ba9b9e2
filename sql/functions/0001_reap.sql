-- Take back jobs whose workers went silent. Guarantees: sql/queries/reap.sql.
--
-- A function, because it must copy failed jobs to dead letter queues, and unblock the next job of each key, in the same
-- transaction and in a later snapshot.
-- Index: job_lease, from the past to now; then the primary keys, once for each.
create function pgjq.reap("limit" integer, stale_age double precision)
returns table (
    queue text, id text, stalls integer, attempts smallint, max_attempts smallint, action text, reason text,
    worker text, payload bytea, task text
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
    has_subscribers constant boolean := pgjq.has_subscribers();
    told record;
begin
    with late as materialized (
        select j.* from pgjq.job as j
        where
            j.state = 1 and j.locked_until <= pgjq.now()
            and (j.locked_until <= pgjq.now() - make_interval(secs => reap.stale_age) or j.expire_at <= pgjq.now())
        -- Jobs of one claim have one deadline; among them the order of enqueueing decides, as elsewhere.
        order by j.locked_until, j.seq
        limit reap."limit" for update skip locked
    ),

    looked_up as materialized (
        select
            l.*,
            case
                when l.cancel_requested then 'cancelled'
                when l.stalled + 1 > l.max_stalled then 'failed'
                when l.attempts >= l.max_attempts and not l.requeue_exhausted then 'failed'
                -- Stately: one job of a key may be failing.
                when (l.queue_id & 7) = 3 and exists (
                    select from pgjq.job as o
                    where
                        o.queue_id = l.queue_id and coalesce(o.singleton_key, '') = coalesce(l.singleton_key, '')
                        and (o.queue_id & 7) > 0 and pgjq.policy_slot(o.queue_id, o.state) = 2
                ) then 'failed'
                else 'recovered'
            end as action,
            case when l.expire_at <= pgjq.now() then 'expired' else 'lease' end as reason,
            l.stalled + case when l.cancel_requested then 0 else 1 end as stalls,
            b.id, b.payload, b.task, q.name as queue, coalesce(w.name, '?') as worker,
            pgjq.retry_delay(b.options, l.attempts) as delay
        from late as l
        inner join pgjq.body as b on l.seq = b.seq and l.queue_id = b.queue_id
        inner join pgjq.queue as q on l.queue_id = q.id
        left join pgjq.worker as w on l.worker_id = w.id
    ),

    judged as materialized (
        select
            l.*,
            json_build_object(
                'type', 'Stalled',
                'message',
                case l.reason when 'expired' then 'the attempt took too long' else 'its worker went silent' end
                || ' (worker ' || l.worker || ')'
            )::text as error
        from looked_up as l
    ),

    ended as (
        delete from pgjq.job as j
        using judged as v
        where j.seq = v.seq and j.queue_id = v.queue_id and v.action <> 'recovered'
    ),

    history as (
        insert into pgjq.done (
            queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank,
            attempts, max_attempts, stalled, singleton_key, state, error
        )
        select
            v.queue_id, v.seq, v.lease, v.started_at, pgjq.now(), pgjq.now() + pgjq.bounded_interval(v.result_ttl),
            case when v.delete_after > 0 and not ((v.queue_id & 7) = 5 and v.action = 'failed')
                then pgjq.now() + pgjq.bounded_interval(v.delete_after) end, v.worker_id,
            v.delete_after, v.rank, v.attempts, v.max_attempts, v.stalls, v.singleton_key,
            case v.action when 'failed' then 4 else 5 end,
            case v.action when 'failed' then v.error end
        from judged as v
        where v.action <> 'recovered'
    ),

    back as (
        update pgjq.job as j
        set
            state = 2, ready = v.delay <= 0, run_at = pgjq.now() + make_interval(secs => v.delay), stalled = v.stalls,
            locked_until = null, expire_at = null, worker_id = null
        from judged as v
        where j.seq = v.seq and j.queue_id = v.queue_id and v.action = 'recovered'
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
        array_agg(v.queue_id) as queue_ids, array_agg(v.singleton_key) as keys,
        array_agg(v.queue_id) filter (where v.action = 'failed') as failed_in,
        array_agg(v.seq) filter (where v.action = 'failed') as failed,
        array_agg(distinct v.queue) filter (where v.action = 'recovered') as woken,
        array_agg(pgjq.end_notification(v.queue, v.id, v.action)) filter (where v.awaited and v.action <> 'recovered') as endings
    into told from judged as v;
    if told.ids is null then
        return;
    end if;
    perform pgjq.copy_dead_letters(told.failed_in, told.failed);
    perform pgjq.unblock_keys(told.queue_ids, told.keys);
    perform pgjq.wake(t.queue) from unnest(told.woken) as t (queue);
    if told.endings is not null then
        perform pgjq.notify_waiters(told.endings);
    end if;
    if has_subscribers then
        perform pgjq.publish(array_agg(e.event order by e.nth, e.n))
        from unnest(told.queues, told.ids, told.stalls, told.attempts, told.actions, told.reasons, told.tasks)
            with ordinality as s (queue, id, stalls, attempts, action, reason, task, n)
        cross join lateral (
            values
            (1, s.n, pgjq.event('stalled', s.queue, s.id, s.attempts, s.stalls, s.action, s.reason, s.task)),
            (2, s.n, pgjq.event(
                case s.action when 'recovered' then 'failing' else s.action end, s.queue, s.id, s.attempts,
                task => s.task
            ))
        ) as e (nth, n, event);
    end if;
    return query
    select s.* from unnest(
        told.queues, told.ids, told.stalls, told.attempts, told.max_attempts, told.actions, told.reasons, told.workers,
        told.payloads, told.tasks
    ) as s;
end
$$;
