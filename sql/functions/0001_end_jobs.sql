-- End live jobs: one function for settlements, cancellations, reapers and invalid jobs.

-- End jobs: move them from `job` to `done`, copy failed ones to their dead letter queues, unblock the next job of each
-- key, and notify waiters and subscribers.
--
-- Only jobs with the given lease end, and only those that run, or only those that do not. States are those of `done`,
-- null means completed; a job with a lower state ends only if it is to be cancelled. A cancel request comes first: such
-- a job ends as cancelled. Returns the jobs that ended, and whether all did, as asked.
--
-- Its callers have set the search_path and the planner (0001_planner_settings.sql), which hold in here, too. Index: the
-- primary key, once for each given row; `state + 0` keeps the planner from starting at the running jobs, which made
-- this quadratic.
create function pgjq.end_jobs(
    queue_ids integer[], seqs bigint[], leases integer[], states smallint[], results bytea[], errors text[],
    running boolean, copy_failed boolean,
    out ended_seqs bigint[], out ended_leases integer[], out ended_states smallint[], out as_asked boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    clock constant timestamptz := pgjq.now();
    has_subscribers constant boolean := pgjq.has_subscribers();
    ended record;
begin
    with moved as (
        delete from pgjq.job as j
        using unnest(queue_ids, seqs, leases, states, results, errors)
            as g (queue_id, seq, lease, state, result, error)
        where
            j.seq = g.seq and j.queue_id = g.queue_id and j.lease = g.lease and (j.state + 0 = 1) = end_jobs.running
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
            case when m.delete_after > 0 and not (pgjq.is_strict(m.queue_id) and m.ended = 4)
                then clock + pgjq.bounded_interval(m.delete_after) end, m.worker_id,
            m.delete_after, m.rank, m.attempts, m.max_attempts, m.stalled, m.singleton_key, m.ended, m.result, m.error
        from moved as m
    )
    select
        array_agg(m.seq) as seqs, array_agg(m.lease) as leases, array_agg(m.ended::smallint) as states,
        count(*) = cardinality(end_jobs.seqs) and not bool_or(m.cancel_requested) as as_asked,
        array_agg(m.queue_id) as queue_ids, array_agg(m.singleton_key) as keys,
        bool_or(pgjq.is_serial(m.queue_id)) as may_unblock,
        array_agg(m.attempts) filter (where has_subscribers) as attempts,
        array_agg(m.queue_id) filter (where m.awaited) as awaited_queue_ids,
        array_agg(m.seq) filter (where m.awaited) as awaited_seqs,
        array_agg(m.ended::smallint) filter (where m.awaited) as awaited_states,
        array_agg(m.queue_id) filter (where m.ended = 4) as failed_queue_ids,
        array_agg(m.seq) filter (where m.ended = 4) as failed_seqs
    into ended from moved as m;
    if ended.failed_seqs is not null and copy_failed then
        perform pgjq.copy_dead_letters(ended.failed_queue_ids, ended.failed_seqs);
    end if;
    if ended.may_unblock then
        perform pgjq.unblock_keys(ended.queue_ids, ended.keys);
    end if;
    if ended.awaited_seqs is not null then
        perform pgjq.notify_waiters_of_jobs(ended.awaited_queue_ids, ended.awaited_seqs, ended.awaited_states);
    end if;
    if has_subscribers then
        perform pgjq.publish_states(ended.queue_ids, ended.seqs, ended.states, ended.attempts);
    end if;
    ended_seqs := ended.seqs;
    ended_leases := ended.leases;
    ended_states := ended.states;
    as_asked := ended.as_asked;
end
$$;

-- Delete what is left of jobs after their rows in `job` and `done`: their progress, their attempts, and their bodies
-- with their ids.
--
-- Index: the primary keys, once for each given row; the settings are those of the callers.
create function pgjq.delete_bodies(queue_ids integer[], seqs bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    delete from pgjq.progress as p
    using unnest(queue_ids, seqs) as g (queue_id, seq)
    where p.seq = g.seq and p.queue_id = g.queue_id;
    delete from pgjq.attempt as a
    using unnest(queue_ids, seqs) as g (queue_id, seq)
    where a.seq = g.seq and a.queue_id = g.queue_id;
    delete from pgjq.body as b
    using unnest(queue_ids, seqs) as g (queue_id, seq)
    where b.seq = g.seq and b.queue_id = g.queue_id;
end
$$;
