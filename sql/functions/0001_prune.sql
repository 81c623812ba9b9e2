-- Prune jobs whose retention has passed.

-- Prune up to `limit` records of ended jobs whose retention and result_ttl have passed: until then the result can be
-- read and the id is taken. Returns how many. Batches are small, and no row that workers use is locked.
--
-- Index: done_delete, from the past to now; then the primary keys, once for each.
create function pgjq.prune_ended("limit" integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    pruned record;
begin
    with old as materialized (
        select past.queue_id, past.seq from pgjq.done as past
        where past.delete_at <= pgjq.now() and (past.superseded or past.state = 5 or past.expires_at <= pgjq.now())
        order by past.delete_at
        limit prune_ended."limit" for update skip locked
    )

    select array_agg(old.queue_id) as queue_ids, array_agg(old.seq) as seqs into pruned from old;

    delete from pgjq.done as d
    using unnest(pruned.queue_ids, pruned.seqs) as g (queue_id, seq)
    where d.seq = g.seq and d.queue_id = g.queue_id;
    perform pgjq.delete_bodies(pruned.queue_ids, pruned.seqs);
    return coalesce(cardinality(pruned.seqs), 0);
end
$$;

-- Prune up to `limit` jobs that have waited longer than their retention without ending; return how many.
--
-- Running jobs are left alone, and so is a failing job in strict order: age never unblocks a key. The retention is the
-- job's own, or 14 days as in `pgjq/options.py`, and never the caller's: the right to prune is no right to delete.
-- Index: the primary key of job.
create function pgjq.prune_waiting("limit" integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    pruned record;
begin
    with old as materialized (
        select j.queue_id, j.seq
        from pgjq.job as j
        inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id
        where
            j.state <> 1 and not (pgjq.is_strict(j.queue_id) and j.state = 2)
            and greatest(b.created_at, j.run_at)
            <= pgjq.now() - make_interval(secs => coalesce(
                (b.options ->> 'retention_seconds')::double precision, 1209600
            ))
        order by j.seq
        limit prune_waiting."limit" for update of j skip locked
    ),

    live as (
        delete from pgjq.job as j
        using unnest(array(select old.queue_id from old), array(select old.seq from old)) as d (queue_id, seq)
        where j.seq = d.seq and j.queue_id = d.queue_id
        returning j.queue_id, j.seq, j.singleton_key, j.awaited
    )

    select
        array_agg(l.queue_id) as queue_ids, array_agg(l.seq) as seqs, array_agg(l.singleton_key) as keys,
        array_agg(l.queue_id) filter (where l.awaited) as awaited_queue_ids,
        array_agg(l.seq) filter (where l.awaited) as awaited_seqs
    into pruned from live as l;

    if pruned.awaited_seqs is not null then
        perform pgjq.notify_waiters_of_jobs(pruned.awaited_queue_ids, pruned.awaited_seqs, null);
    end if;
    perform pgjq.delete_bodies(pruned.queue_ids, pruned.seqs);
    perform pgjq.unblock_keys(pruned.queue_ids, pruned.keys);
    return coalesce(cardinality(pruned.seqs), 0);
end
$$;
