-- Cancel jobs.

-- Cancel jobs that are not running: their records stay as cancelled, their ids are free at once. Returns their ids.
--
-- The lock of the job's row decides a race with a claim: if the claim was first, the state is checked again after the
-- wait, nothing matches, and the caller reads the job's new state.
-- Index: body_id, then the primary key.
create function pgjq.cancel_jobs(queue text, ids text[]) returns setof text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    wanted record;
begin
    with named as materialized (
        select b.queue_id, b.seq, b.id
        from pgjq.body as b
        inner join pgjq.queue as q on b.queue_id = q.id
        where q.name = cancel_jobs.queue and b.id = any(cancel_jobs.ids) and not b.superseded
    ),

    locked as materialized (
        select j.queue_id, j.seq, j.lease, n.id
        from named as n
        inner join pgjq.job as j on j.seq = n.seq and j.queue_id = n.queue_id
        where j.state <> 1
        for update of j
    )

    select
        array_agg(k.queue_id) as queue_ids, array_agg(k.seq) as seqs, array_agg(k.lease) as leases,
        array_agg(k.id) as ids
    into wanted from locked as k;
    if wanted.seqs is null then
        return;
    end if;
    perform pgjq.end_jobs(
        wanted.queue_ids, wanted.seqs, wanted.leases, array_fill(5::smallint, array[cardinality(wanted.seqs)]),
        null, null, false, false
    );
    return query select w.id from unnest(wanted.ids) as w (id);
end
$$;
