-- Attempts: the history of a job's runs.
--
-- Each run has one row in `attempt`, written by what ends it, under the run's lease; the completing run is the row in
-- `done` instead. The primary key refuses a second row, such as that of a settlement that is sent again.

-- Record runs that ended their jobs otherwise than by completion, as their rows in `done` tell.
--
-- `outcomes` are those of the runs, null for a run that completed although its job was to be cancelled. A released job
-- that found no slot has failed. Index: the primary keys, once for each given row.
create function pgjq.record_ended_runs(queue_ids integer[], seqs bigint[], leases integer[], outcomes text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into pgjq.attempt (seq, queue_id, number, worker, started_at, ended_at, outcome, error)
    select
        d.seq, d.queue_id, d.lease, w.name, d.started_at, d.finished_at,
        case when d.state = 5 then 'cancelled' when g.outcome = 'expired' then 'expired' else 'failed' end, d.error
    from unnest(queue_ids, seqs, leases, outcomes) as g (queue_id, seq, lease, outcome)
    inner join pgjq.done as d on d.seq = g.seq and d.queue_id = g.queue_id and d.lease = g.lease
    left join pgjq.worker as w on d.worker_id = w.id
    where d.state <> 3
    on conflict do nothing;
    perform pgjq.trim_attempts(queue_ids, seqs, leases);
end
$$;

-- Keep twenty attempts of each job, after the runs with these leases were recorded: the first, and the last nineteen.
--
-- Index: the primary key, and only for jobs that have run more than twenty times.
create function pgjq.trim_attempts(queue_ids integer[], seqs bigint[], leases integer[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if 20 < any(leases) then
        delete from pgjq.attempt as a
        using unnest(queue_ids, seqs, leases) as g (queue_id, seq, lease)
        where a.seq = g.seq and a.queue_id = g.queue_id and a.number between 2 and g.lease - 19;
    end if;
end
$$;
