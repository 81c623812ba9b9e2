-- Reap: take back up to :limit jobs whose locked_until has passed, the most overdue first.
--
-- Guarantees
--   * One statement, safe for any number of callers: each takes what the others have not locked, and a job that is
--     being settled or renewed at this moment is skipped; it is not stalled, or the next pass finds it.
--   * Found through the jobs, never through a list of workers.
--   * The decision is that of pgjq.lease.judge, and is tested against it: a wish to cancel first, then the stall is
--     counted, and over max_stalled, or without attempts left, the job has failed; else it runs again.
--   * Which workers a job stalled on is written down, and why it stalled last, for whoever looks for a job that takes
--     its workers down.
--   * An attempt that has expired is taken however alive its worker is. :stale_age is extra patience for leases only.
--
-- Index: job_lease, from the past to now; then the primary keys, once for each.
with late as materialized (
    select j.* from pgjq.job as j
    where
        j.state = 1 and j.locked_until <= pgjq.now()
        and (j.locked_until <= pgjq.now() - make_interval(secs => :stale_age) or j.expire_at <= pgjq.now())
    order by j.locked_until
    limit :limit for update skip locked
),

looked_up as materialized (
    select
        l.*,
        case
            when l.cancel_requested then 'cancelled'
            when l.stalled + 1 > l.max_stalled then 'failed'
            when l.attempts >= l.max_attempts and not l.requeue_exhausted then 'failed'
            else 'recovered'
        end as action,
        case when l.expire_at <= pgjq.now() then 'expired' else 'lease' end as reason,
        l.stalled + case when l.cancel_requested then 0 else 1 end as stalls,
        b.id, b.payload, q.name as queue, coalesce(w.name, '?') as worker,
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
        queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank, attempts,
        max_attempts, stalled, singleton_key, state, error
    )
    select
        v.queue_id, v.seq, v.lease, v.started_at, pgjq.now(), pgjq.now() + make_interval(secs => v.result_ttl),
        case when v.delete_after > 0 then pgjq.now() + make_interval(secs => v.delete_after) end, v.worker_id,
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
    returning j.queue_id, j.ready
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
    v.queue, v.id, v.stalls, v.attempts, v.max_attempts, v.action, v.reason, v.worker,
    case v.action when 'failed' then v.payload end as payload,
    (
        select case when exists (select from back where back.ready)
                then (
                    select count(pgjq.wake(q.name)) from pgjq.queue as q
                    where q.id in (select b.queue_id from back as b where b.ready)
                )
        end
    ) as woken,
    (
        select case when pgjq.watched() then (
                select pgjq.publish(array_agg(e.event order by e.n))
                from (
                    select
                        1 as n, pgjq.event('stalled', s.queue, s.id, s.attempts, s.stalls, s.action, s.reason) as event
                    from judged as s
                    union all
                    select
                        2 as n,
                        pgjq.event(
                            case s.action when 'recovered' then 'failing' else s.action end, s.queue, s.id, s.attempts
                        )
                            as event
                    from judged as s
                ) as e
            )
        end
    ) as published,
    (
        select case when bool_or(e.awaited) then pgjq.answer(array_agg(pgjq.ending(e.queue, e.id, e.action))) end
        from judged as e
        where e.awaited and e.action <> 'recovered'
    ) as answered
from judged as v
order by v.locked_until
