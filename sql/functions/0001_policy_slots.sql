-- Policy slots of released jobs.

-- Find slots for released jobs in queues where there may be none: short and stately.
--
-- A job that cannot be queued again, because another one is, or precedes it in this batch, waits as failing (1: without
-- having failed); a job that cannot be failing, because another one is, has failed (4). No other job can take the slot
-- of a failing job meanwhile: only the one processing job of a key could. An enqueue may take the slot of a queued job;
-- then the index job_policy_slot refuses the update, and the caller repeats. If a transaction that stays open has taken
-- it, the caller does not wait, and calls this with `assume_taken`: the slot counts as taken.
create function pgjq.find_policy_slots(
    queue_ids integer[], seqs bigint[], leases integer[], states smallint[], errors text[], assume_taken boolean,
    out new_states smallint[], out new_errors text[]
)
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with looked as (
        select
            g.n, g.queue_id, g.state, g.error,
            j.seq is not null and g.state = 0 and j.attempts <= 1 as wants_queued,
            row_number() over (
                partition by
                    g.queue_id, coalesce(j.singleton_key, ''), j.seq is not null and g.state = 0 and j.attempts <= 1
                order by g.n
            ) > 1 as after_another,
            assume_taken or exists (
                select from pgjq.job as o
                where
                    o.queue_id = g.queue_id and coalesce(o.singleton_key, '') = coalesce(j.singleton_key, '')
                    and pgjq.limits_keys(o.queue_id) and pgjq.policy_slot(o.queue_id, o.state) = 0
            ) as queued,
            exists (
                select from pgjq.job as o
                where
                    o.queue_id = g.queue_id and coalesce(o.singleton_key, '') = coalesce(j.singleton_key, '')
                    and pgjq.limits_keys(o.queue_id) and pgjq.policy_slot(o.queue_id, o.state) = 2
            ) as failing
        from unnest(queue_ids, seqs, leases, states, errors) with ordinality
            as g (queue_id, seq, lease, state, error, n)
        left join pgjq.job as j
            on j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
    ),

    placed as (
        select l.n, l.error, case
            when
                l.state > 2 or not pgjq.may_lack_slot(l.queue_id)
                or (l.wants_queued and not l.queued and not l.after_another)
                then l.state
            when pgjq.is_stately(l.queue_id) and l.failing then 4
            when l.wants_queued then 1
            else l.state
        end as state
        from looked as l
    )

    select
        array_agg(p.state::smallint order by p.n),
        array_agg(case when p.state = 4 and p.error is null then
            '{"type": "PolicyError", "message": "released while another job of its key is failing", "traceback": null}'
        else p.error end order by p.n)
    from placed as p
$$;
