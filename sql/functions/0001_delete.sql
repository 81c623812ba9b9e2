-- Delete jobs.

-- Delete jobs that are not running, and free their ids; return the ids that were deleted.
--
-- The row in `job` is deleted first: if a claim was faster, nothing is deleted, and the rest of the job stays, too.
-- Index: body_id, then the primary keys.
create function pgjq.delete_jobs(queue text, ids text[]) returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    removed record;
begin
    with wanted as materialized (
        select b.queue_id, b.seq, b.id
        from pgjq.body as b
        inner join pgjq.queue as q on b.queue_id = q.id
        where q.name = delete_jobs.queue and b.id = any(delete_jobs.ids) and not b.superseded
    ),

    live as (
        delete from pgjq.job as j
        using wanted as w
        where j.seq = w.seq and j.queue_id = w.queue_id and j.state <> 1
        returning j.queue_id, j.seq, j.singleton_key, j.awaited, w.id
    ),

    ended as (
        delete from pgjq.done as d
        using wanted as w
        where d.seq = w.seq and d.queue_id = w.queue_id
        returning d.queue_id, d.seq, d.singleton_key, false as awaited, w.id
    ),

    deleted as (
        select l.* from live as l
        union all
        select e.* from ended as e
    )

    select
        array_agg(d.queue_id) as queue_ids, array_agg(d.seq) as seqs, array_agg(d.singleton_key) as keys,
        array_agg(d.id) as ids,
        array_agg(pgjq.end_notification(delete_jobs.queue, d.id, 'deleted')) filter (where d.awaited) as notifications
    into removed from deleted as d;

    perform pgjq.delete_bodies(removed.queue_ids, removed.seqs);
    perform pgjq.unblock_keys(removed.queue_ids, removed.keys);
    if removed.notifications is not null then
        perform pgjq.notify_waiters(removed.notifications);
    end if;
    return query select g.id from unnest(removed.ids) as g (id);
end
$$;
