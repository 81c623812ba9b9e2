-- Settle runs. Guarantees: sql/queries/settle.sql.

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
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    with looked as (
        select
            g.n, g.state, g.error, g.queue_id & 7 as policy,
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
                    and (o.queue_id & 7) > 0 and pgjq.policy_slot(o.queue_id, o.state) = 0
            ) as queued,
            exists (
                select from pgjq.job as o
                where
                    o.queue_id = g.queue_id and coalesce(o.singleton_key, '') = coalesce(j.singleton_key, '')
                    and (o.queue_id & 7) > 0 and pgjq.policy_slot(o.queue_id, o.state) = 2
            ) as failing
        from unnest(queue_ids, seqs, leases, states, errors) with ordinality
            as g (queue_id, seq, lease, state, error, n)
        left join pgjq.job as j
            on j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
    ),

    placed as (
        select l.n, l.error, case
            when l.state > 2 or l.policy not in (1, 3) or (l.wants_queued and not l.queued and not l.after_another)
                then l.state
            when l.policy = 3 and l.failing then 4
            when l.wants_queued then 1
            else l.state
        end as state
        from looked as l
    )

    select
        array_agg(p.state::smallint order by p.n),
        array_agg(case when p.state = 4 and p.error is null then
            '{"type": "PolicyError", "message": "given back while another job of its key is failing", "traceback": null}'
        else p.error end order by p.n)
    from placed as p
$$;

-- End runs, or release jobs.
--
-- A function for the same reasons as claiming (functions/0001_claim.sql). Index: the primary key, once for each given
-- row; `state + 0` keeps the planner from starting at the running jobs, which made this quadratic.
--
-- Returns the new states of the jobs, in three arrays; they are null if every run ended as its outcome says, which is
-- nearly always, and then there is nothing to read. States are those of the tables; null means completed. `lock_limit`
-- is how long to wait for a row that another transaction has locked; null means the session's own limit.
create function pgjq.settle(
    queue_ids integer[], seqs bigint[], leases integer[], states smallint[], results bytea[], errors text[],
    delays double precision[], lock_limit text default null,
    out settled_seqs bigint[], out settled_leases integer[], out settled_states smallint[]
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
declare
    clock constant timestamptz := pgjq.now();
    has_subscribers constant boolean := pgjq.has_subscribers();
    patience constant text := coalesce(lock_limit, current_setting('lock_timeout'));
    limited constant boolean := coalesce(3 > any(states), false) and exists (
        select from unnest(queue_ids) as q (id) where (q.id & 7) in (1, 3)
    );
    back record;
    ended record;
    placed record;
    assume_taken boolean := false;
    tries integer := 0;
    new_states smallint[] := states;
    new_errors text[] := errors;
begin
    if lock_limit is not null then
        perform set_config('lock_timeout', lock_limit, true);
    end if;
    -- First the jobs to release, then the jobs to end: if a cancel request is committed while the first statement waits
    -- for the row, the second sees it and ends the job as cancelled.
    if 3 > any(states) then
        loop
            begin
                if limited then
                    perform set_config('lock_timeout', '200ms', true);
                    placed := pgjq.find_policy_slots(queue_ids, seqs, leases, states, errors, assume_taken);
                    new_states := placed.new_states;
                    new_errors := placed.new_errors;
                end if;
                with moved as (
                    update pgjq.job as j
                    set
                        state = case when g.state > 0 or j.attempts > 1 then 2 else 0 end,
                        attempts = case when g.state = 2 then j.attempts else j.attempts - 1 end,
                        run_at = clock + make_interval(secs => coalesce(g.delay, 0)), ready = coalesce(g.delay, 0) <= 0,
                        locked_until = null, expire_at = null, worker_id = null
                    from unnest(queue_ids, seqs, leases, new_states, new_errors, delays)
                        as g (queue_id, seq, lease, state, error, delay)
                    where
                        j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
                        and g.state < 3 and not j.cancel_requested
                    returning
                        j.queue_id, j.seq, j.lease, j.state, j.attempts, g.error, j.singleton_key
                ),
                noted as (
                    insert into pgjq.progress (queue_id, seq, error)
                    select m.queue_id, m.seq, m.error from moved as m
                    where m.error is not null
                    on conflict (seq, queue_id) do update set error = excluded.error
                )
                select
                    array_agg(m.queue_id) as queue_ids, array_agg(m.seq) as seqs, array_agg(m.lease) as leases,
                    array_agg(m.state) as states, array_agg(m.attempts) as attempts,
                    array_agg(m.singleton_key) as keys,
                    array_agg(distinct m.queue_id) as woken
                into back from moved as m;
                perform set_config('lock_timeout', patience, true);
                exit;
            exception
                when unique_violation then
                    -- An enqueue took the slot at the same moment. That does not happen a hundred times in a row.
                    tries := tries + 1;
                    if tries = 100 then
                        raise;
                    end if;
                when lock_not_available then
                    -- With `assume_taken` no slot is waited for: another transaction has locked a job's own row.
                    if assume_taken and lock_limit is not null then
                        raise;
                    end if;
                    assume_taken := true;
            end;
        end loop;
        perform pgjq.unblock_keys(back.queue_ids, back.keys);
        -- Also for jobs that are due later: workers sleep until the next job is due, and this one may come first.
        perform pgjq.wake(q.name) from pgjq.queue as q where q.id = any(back.woken);
        if has_subscribers then
            perform pgjq.publish_states(back.queue_ids, back.seqs, back.states, back.attempts);
        end if;
        settled_seqs := back.seqs;
        settled_leases := back.leases;
        settled_states := back.states;
    end if;

    with moved as (
        delete from pgjq.job as j
        using unnest(queue_ids, seqs, leases, new_states, results, new_errors)
            as g (queue_id, seq, lease, state, result, error)
        where
            j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
            and (coalesce(g.state, 3) >= 3 or j.cancel_requested)
        returning
            j.*, case when j.cancel_requested then 5 else coalesce(g.state, 3) end as ended,
            case when not j.cancel_requested then g.result end as result,
            case when not j.cancel_requested then g.error end as error
    ),
    history as (
        insert into pgjq.done (
            queue_id, seq, lease, started_at, finished_at, expires_at, delete_at, worker_id, delete_after, rank,
            attempts, max_attempts, stalled, singleton_key, state, result, error
        )
        select
            m.queue_id, m.seq, m.lease, m.started_at, clock, clock + pgjq.bounded_interval(m.result_ttl),
            -- A failed job in strict order stays, whatever its age: it blocks its key.
            case when m.delete_after > 0 and not ((m.queue_id & 7) = 5 and m.ended = 4)
                then clock + pgjq.bounded_interval(m.delete_after) end, m.worker_id,
            m.delete_after, m.rank, m.attempts, m.max_attempts, m.stalled, m.singleton_key, m.ended, m.result, m.error
        from moved as m
    )
    select
        array_agg(m.seq) as seqs, array_agg(m.lease) as leases, array_agg(m.ended::smallint) as states,
        count(*) = cardinality(settle.seqs) and not bool_or(m.cancel_requested) and not limited as as_asked,
        array_agg(m.queue_id) filter (where has_subscribers) as queue_ids,
        array_agg(m.attempts) filter (where has_subscribers) as attempts,
        array_agg(m.queue_id) filter (where m.awaited) as awaited_queue_ids,
        array_agg(m.seq) filter (where m.awaited) as awaited_seqs,
        array_agg(m.ended::smallint) filter (where m.awaited) as awaited_states,
        array_agg(m.queue_id) filter (where m.ended = 4) as failed_in,
        array_agg(m.seq) filter (where m.ended = 4) as failed,
        array_agg(m.queue_id) filter (where (m.queue_id & 7) > 0) as freed_in,
        array_agg(m.singleton_key) filter (where (m.queue_id & 7) > 0) as freed
    into ended from moved as m;
    if ended.failed is not null then
        perform pgjq.copy_dead_letters(ended.failed_in, ended.failed);
    end if;
    if ended.freed_in is not null then
        perform pgjq.unblock_keys(ended.freed_in, ended.freed);
    end if;
    if ended.awaited_seqs is not null then
        perform pgjq.notify_waiters_of_jobs(ended.awaited_queue_ids, ended.awaited_seqs, ended.awaited_states);
    end if;
    if has_subscribers then
        perform pgjq.publish_states(ended.queue_ids, ended.seqs, ended.states, ended.attempts);
    end if;
    if ended.as_asked then
        return;
    end if;
    settled_seqs := coalesce(settled_seqs || ended.seqs, '{}');
    settled_leases := coalesce(settled_leases || ended.leases, '{}');
    settled_states := coalesce(settled_states || ended.states, '{}');
end
$$;

-- Return how runs ended: the state in which each left its job, and whether the job has the given error. No row for a
-- run that goes on, or whose job has been claimed again or is gone.
--
-- Errors are compared here, so that the caller learns nothing about an error that it does not know.
-- Index: the primary keys, once for each row given.
create function pgjq.find_settled(queue_ids integer[], seqs bigint[], leases integer[], errors text[]) returns table (
    seq bigint, lease integer, state smallint, same_error boolean
)
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select d.seq, d.lease, d.state, coalesce(d.error = g.error, false)
    from unnest(queue_ids, seqs, leases, errors) as g (queue_id, seq, lease, error)
    inner join pgjq.done as d on d.seq = g.seq and d.queue_id = g.queue_id and d.lease = g.lease
    union all
    select j.seq, j.lease, j.state, coalesce(p.error = g.error, false)
    from unnest(queue_ids, seqs, leases, errors) as g (queue_id, seq, lease, error)
    inner join pgjq.job as j
        on j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 <> 1
    left join pgjq.progress as p on p.seq = j.seq and p.queue_id = j.queue_id
$$;

-- Save a checkpoint for a job's next run, and return the job's number, if the lease still holds.
--
-- The job's row is locked first, so that no reaper or new claim comes between the check and the write.
-- Index: the primary keys.
create function pgjq.save_checkpoint(queue_id integer, seq bigint, lease integer, checkpoint bytea) returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    with locked as materialized (
        select j.queue_id, j.seq from pgjq.job as j
        where
            j.seq = save_checkpoint.seq and j.queue_id = save_checkpoint.queue_id and j.lease = save_checkpoint.lease
            and j.state + 0 = 1
        for no key update
    )

    insert into pgjq.progress as p (queue_id, seq, checkpoint)
    select k.queue_id, k.seq, save_checkpoint.checkpoint from locked as k
    on conflict (seq, queue_id) do update set checkpoint = excluded.checkpoint
    returning p.seq;
end
$$;
