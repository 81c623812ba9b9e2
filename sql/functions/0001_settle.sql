-- Settle runs. Guarantees: sql/queries/settle.sql.

-- End runs, or release jobs.
--
-- A function for the same reasons as claiming (functions/0001_claim.sql). Returns the new states of the jobs, in three
-- arrays; they are null if every run ended as its outcome says, which is nearly always, and then there is nothing to
-- read. States are those of the tables; null means completed. `outcomes` are the runs' in the history of attempts.
-- `lock_limit` is how long to wait for a row that another transaction has locked; null means the session's own limit.
create function pgjq.settle(
    queue_ids integer[], seqs bigint[], leases integer[], states smallint[], results bytea[], errors text[],
    delays double precision[], outcomes text[] default null, lock_limit text default null,
    out settled_seqs bigint[], out settled_leases integer[], out settled_states smallint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    released record;
    ended record;
begin
    if lock_limit is not null then
        perform set_config('lock_timeout', lock_limit, true);
    end if;
    -- First the jobs to release, then the jobs to end: if a cancel request is committed while the first statement waits
    -- for the row, the second sees it and ends the job as cancelled.
    if 3 > any(states) then
        released := pgjq.release_jobs(
            queue_ids, seqs, leases, states, errors, delays, outcomes, lock_limit is not null
        );
        ended := pgjq.end_jobs(
            queue_ids, seqs, leases, released.new_states, results, released.new_errors, true, true
        );
        perform pgjq.record_ended_runs(queue_ids, seqs, leases, outcomes);
        settled_seqs := coalesce(released.released_seqs || ended.ended_seqs, '{}');
        settled_leases := coalesce(released.released_leases || ended.ended_leases, '{}');
        settled_states := coalesce(released.released_states || ended.ended_states, '{}');
        return;
    end if;
    ended := pgjq.end_jobs(queue_ids, seqs, leases, states, results, errors, true, true);
    if states is not null or not coalesce(ended.as_asked, false) then
        perform pgjq.record_ended_runs(queue_ids, seqs, leases, outcomes);
    end if;
    if not coalesce(ended.as_asked, false) then
        settled_seqs := coalesce(ended.ended_seqs, '{}');
        settled_leases := coalesce(ended.ended_leases, '{}');
        settled_states := coalesce(ended.ended_states, '{}');
    end if;
end
$$;

-- Release running jobs whose new states are queued or failing, in the transaction that settles them.
--
-- Returns all the given states and errors, changed where the policy has no slot for a job (`pgjq.find_policy_slots`),
-- and the jobs that were released. With `is_limited` the caller has limited how long to wait for a locked row.
create function pgjq.release_jobs(
    queue_ids integer[], seqs bigint[], leases integer[], states smallint[], errors text[], delays double precision[],
    outcomes text[], is_limited boolean,
    out new_states smallint[], out new_errors text[],
    out released_seqs bigint[], out released_leases integer[], out released_states smallint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    clock constant timestamptz := pgjq.now();
    lock_limit constant text := current_setting('lock_timeout');
    may_lack_slots constant boolean := exists (
        select from unnest(queue_ids) as q (id) where pgjq.may_lack_slot(q.id)
    );
    released record;
    slots record;
    assume_taken boolean := false;
    tries integer := 0;
begin
    new_states := states;
    new_errors := errors;
    loop
        begin
            if may_lack_slots then
                perform set_config('lock_timeout', '200ms', true);
                slots := pgjq.find_policy_slots(queue_ids, seqs, leases, states, errors, assume_taken);
                new_states := slots.new_states;
                new_errors := slots.new_errors;
            end if;
            with moved as (
                update pgjq.job as j
                set
                    state = case when g.state > 0 or j.attempts > 1 then 2 else 0 end,
                    attempts = case when g.state = 2 then j.attempts else j.attempts - 1 end,
                    run_at = clock + make_interval(secs => coalesce(g.delay, 0)), ready = coalesce(g.delay, 0) <= 0,
                    locked_until = null, expire_at = null, worker_id = null
                from unnest(queue_ids, seqs, leases, new_states, new_errors, delays, outcomes)
                    as g (queue_id, seq, lease, state, error, delay, outcome)
                -- The row before the update, which still names the worker of the run.
                inner join pgjq.job as o on o.seq = g.seq and o.queue_id = g.queue_id and o.lease = g.lease
                where
                    j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 = 1
                    and g.state < 3 and not j.cancel_requested
                returning
                    j.queue_id, j.seq, j.lease, j.state, j.attempts, g.error, j.singleton_key, j.started_at,
                    o.worker_id, coalesce(g.outcome, case g.state when 2 then 'failed' else 'released' end) as outcome
            ),
            recorded as (
                insert into pgjq.attempt (seq, queue_id, number, worker, started_at, ended_at, outcome, error)
                select m.seq, m.queue_id, m.lease, w.name, m.started_at, clock, m.outcome, m.error
                from moved as m left join pgjq.worker as w on m.worker_id = w.id
            ),
            noted as (
                insert into pgjq.progress (queue_id, seq, error)
                select m.queue_id, m.seq, m.error from moved as m
                where m.error is not null
                on conflict (seq, queue_id) do update set error = excluded.error
            )
            select
                array_agg(m.queue_id) as queue_ids, array_agg(m.seq) as seqs, array_agg(m.lease) as leases,
                array_agg(m.state) as states, array_agg(m.attempts) as attempts, array_agg(m.singleton_key) as keys
            into released from moved as m;
            perform set_config('lock_timeout', lock_limit, true);
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
                if assume_taken and is_limited then
                    raise;
                end if;
                assume_taken := true;
        end;
    end loop;
    perform pgjq.trim_attempts(released.queue_ids, released.seqs, released.leases);
    perform pgjq.unblock_keys(released.queue_ids, released.keys);
    -- Also for jobs that are due later: workers sleep until the next job is due, and this one may come first.
    perform pgjq.wake(q.name) from pgjq.queue as q where q.id = any(released.queue_ids);
    if pgjq.has_subscribers() then
        perform pgjq.publish_states(released.queue_ids, released.seqs, released.states, released.attempts);
    end if;
    released_seqs := released.seqs;
    released_leases := released.leases;
    released_states := released.states;
end
$$;

-- Return how runs ended: the recorded outcome of each (null: it completed), the state that it left its job in (null:
-- the job has been claimed again), and whether the run has the given error. No row for a run that goes on or is
-- unknown.
--
-- Errors are compared here, so that the caller learns nothing about an error that it does not know.
-- Index: the primary keys, once for each row given.
create function pgjq.find_settled(queue_ids integer[], seqs bigint[], leases integer[], errors text[]) returns table (
    seq bigint, lease integer, state smallint, outcome text, same_error boolean
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select g.seq, g.lease, s.state, a.outcome, a.error is not distinct from g.error
    from unnest(queue_ids, seqs, leases, errors) as g (queue_id, seq, lease, error)
    left join pgjq.attempt as a on a.seq = g.seq and a.queue_id = g.queue_id and a.number = g.lease
    left join lateral (
        select d.state from pgjq.done as d where d.seq = g.seq and d.queue_id = g.queue_id and d.lease = g.lease
        union all
        select j.state from pgjq.job as j
        where j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and j.state + 0 <> 1
    ) as s on true
    where a.seq is not null or s.state is not null
$$;
