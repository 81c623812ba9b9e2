-- Unblock jobs after their blockers are gone: see 0001_pick_serial.sql.

-- Unblock one job of each of these keys, and wake sleeping workers, after the blocker is gone.
--
-- The policy's order decides which job is first; the claim checks whether it may run.
-- Index: job_key_due, in strict order job_key_order: the first entry of each key.
create function pgjq.unblock_keys(queue_ids integer[], keys text[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    woken integer[];
    missed boolean;
begin
    loop
        with freed as materialized (
            select distinct f.queue_id, coalesce(f.key, '') as key
            from unnest(queue_ids, keys) as f (queue_id, key)
            where pgjq.is_serial(f.queue_id)
        ),

        next as materialized (
            select
                f.queue_id, case when pgjq.is_strict(f.queue_id) then (
                    select case when l.blocked then l.seq end from pgjq.job as l
                    where
                        l.queue_id = f.queue_id and coalesce(l.singleton_key, '') = f.key
                        and pgjq.is_strict(l.queue_id)
                    order by l.seq limit 1
                )
                else (
                    select h.seq from pgjq.job as h
                    where
                        h.queue_id = f.queue_id and coalesce(h.singleton_key, '') = f.key
                        and pgjq.is_serial(h.queue_id) and h.blocked
                    order by h.rank, h.seq limit 1
                ) end as seq
            from freed as f
            order by f.queue_id, f.key
        ),

        unblocked as (
            update pgjq.job as j set ready = true, blocked = false
            from next as n
            where j.seq = n.seq and j.queue_id = n.queue_id and j.blocked
            returning j.queue_id
        )

        select
            (select array_agg(distinct t.queue_id) from unblocked as t),
            (select count(n.seq) from next as n) > (select count(*) from unblocked)
        into woken, missed;
        perform pgjq.wake(q.name) from pgjq.queue as q where q.id = any(woken);
        -- A concurrent transaction removed the job to unblock, and unblocked no other: it still saw the blocker.
        -- So repeat.
        exit when not missed;
    end loop;
end
$$;

-- Unblock the next job of an ended job's key once more.
--
-- A transaction with an old snapshot ends a job without seeing jobs that claims have blocked since it began, and
-- unblocks none of them. So after a handler's own transaction has ended a job, its worker calls this outside of it.
-- Index: the primary key of done.
create function pgjq.unblock_key_of_job(queue_id integer, seq bigint) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgjq.unblock_keys(array[d.queue_id], array[d.singleton_key]) from pgjq.done as d
    where d.seq = unblock_key_of_job.seq and d.queue_id = unblock_key_of_job.queue_id;
end
$$;

-- Unblock keys that have blocked jobs and no blocker. That happens only if an operator deletes rows by hand, or a
-- worker dies between a handler's own transaction and `pgjq.unblock_key_of_job`.
create function pgjq.unblock_forgotten_keys() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    forgotten record;
begin
    with blocked as materialized (
        select distinct h.queue_id, coalesce(h.singleton_key, '') as key from pgjq.job as h
        where h.blocked and pgjq.is_serial(h.queue_id)
    )

    select array_agg(k.queue_id) as queue_ids, array_agg(k.key) as keys into forgotten
    from blocked as k
    where
        not exists (
            select from pgjq.job as o
            where
                o.queue_id = k.queue_id and coalesce(o.singleton_key, '') = k.key and pgjq.limits_keys(o.queue_id)
                and (o.state = 1 or o.ready or (pgjq.is_strict(o.queue_id) and not o.blocked))
        )
        and not exists (
            select from pgjq.done as d
            where
                d.queue_id = k.queue_id and d.singleton_key = k.key and pgjq.is_strict(d.queue_id) and d.state = 4
                and not d.superseded
        );
    perform pgjq.unblock_keys(forgotten.queue_ids, forgotten.keys);
end
$$;
