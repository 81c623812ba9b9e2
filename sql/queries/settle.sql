-- Settle: end runs, or give jobs back, each under the lease that its worker holds.
--
-- Guarantees
--   * Fenced: a row whose lease has moved on, or that nobody runs any more, is left alone and not returned. So a
--     worker that slept past its lease cannot overwrite its successor, and completing races with reaping: whoever
--     locks the row first wins, and the other finds nothing.
--   * A job leaves `job` and enters `done` in this one statement: no reader sees it in both or in neither.
--   * A wish to cancel that came before the handler's end ends the job as cancelled, whatever the outcome was.
--
-- :states are 3 completed, 4 failed, 5 cancelled, 2 failing, 0 given back without counting the attempt. Index: the
-- primary key, once for each row given. The arrays come out of subselects, so that the planner does not count them
-- and prefer to read the whole table for a big batch; and `state + 0` keeps it from starting at the running jobs,
-- which made this quadratic. The caller sorts the rows by queue and seq: then two batches lock in one order.
with given as (
    select *
    from unnest(
            (select :queue_ids::text::integer[]),
            (select :seqs::text::bigint[]),
            (select :leases::text::integer[]),
            (select :states::text::smallint[]),
            (select :results::text::bytea[]),
            (select :errors::text::text[]), (select :delays::text::double precision[])
        ) as g (queue_id, seq, lease, state, result, error, delay)
),

ended as (
    delete from pgjq.job as j
    using given as g
    where
        j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
        and (g.state >= 3 or j.cancel_requested)
    returning
        j.queue_id, j.seq, j.lease, j.result_ttl, j.started_at, j.worker_id, j.delete_after, j.rank, j.attempts,
        j.max_attempts, j.stalled, j.singleton_key, j.awaited,
        case when j.cancel_requested then 5 else g.state end as state,
        case when not j.cancel_requested then g.result end as result,
        case when not j.cancel_requested then g.error end as error
),

history as (
    insert into pgjq.done (
        queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank, attempts,
        max_attempts, stalled, singleton_key, state, result, error
    )
    select
        e.queue_id, e.seq, e.lease, e.started_at, pgjq.now(), pgjq.now() + make_interval(secs => e.result_ttl),
        case when e.delete_after > 0 then pgjq.now() + make_interval(secs => e.delete_after) end, e.worker_id,
        e.delete_after, e.rank, e.attempts, e.max_attempts, e.stalled, e.singleton_key, e.state, e.result, e.error
    from ended as e
),

back as (
    update pgjq.job as j
    set
        state = case when g.state = 2 or j.attempts > 1 then 2 else 0 end,
        attempts = case when g.state = 2 then j.attempts else j.attempts - 1 end,
        run_at = pgjq.now() + make_interval(secs => coalesce(g.delay, 0)), ready = coalesce(g.delay, 0) <= 0,
        locked_until = null, expire_at = null, worker_id = null
    from given as g
    where
        j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
        and g.state < 3 and not j.cancel_requested
    returning j.queue_id, j.seq, j.lease, j.state, j.attempts, j.ready, g.error
),

noted as (
    insert into pgjq.progress (queue_id, seq, error)
    select b.queue_id, b.seq, b.error from back as b
    where b.error is not null
    on conflict (seq, queue_id) do update set error = excluded.error
),

settled as (
    select e.queue_id, e.seq, e.lease, e.state, e.attempts from ended as e
    union all
    select b.queue_id, b.seq, b.lease, b.state, b.attempts from back as b
)

select
    s.seq, s.lease, s.state,
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
                select
                    pgjq.publish(array_agg(pgjq.event(
                        (array['queued', '', 'failing', 'completed', 'failed', 'cancelled'])[e.state + 1],
                        q.name, b.id, e.attempts
                    )))
                from settled as e
                inner join pgjq.body as b on e.seq = b.seq and e.queue_id = b.queue_id
                inner join pgjq.queue as q on e.queue_id = q.id
            )
        end
    ) as published,
    (
        select
            case when bool_or(e.awaited) then pgjq.answer_jobs(
                        array_agg(e.queue_id) filter (where e.awaited), array_agg(e.seq) filter (where e.awaited),
                        array_agg(e.state::smallint) filter (where e.awaited)
                    )
            end
        from ended as e
    ) as answered
from settled as s
