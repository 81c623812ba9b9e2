-- Blocked jobs, where one job of a key may run at a time: singleton, stately, key_strict_fifo.
--
-- A job is enqueued as ready, whatever the state of its key: a producer may keep its transaction open for hours, and no
-- session must wait for it. The first claim that finds a ready job of a busy key *blocks* it: it takes the job out of
-- the index that claims walk, so that later claims do not read it, however many there are. The transaction that
-- removes the blocker *unblocks* one job of the key. No job stays blocked in between: a claim blocks a job only while
-- it has a lock on the blocking row, and that row changes only under a lock of its own; if it is changing at the
-- moment, the job stays ready and the next claim checks again. Only claims, settlements and similar short transactions
-- take these locks.
--
-- None of this ensures that a key never runs twice: the index job_policy_slot does.

-- Lock and return up to `room` jobs of a queue that may run now, and block jobs of busy keys.
--
-- Candidates come from the head of job_ready, so that an older job of a busy key hides no other. A candidate is blocked
-- by a job of its key that is processing, or ready and before it; in strict order also by one that is failing or has
-- failed, and by any that was created before. So two concurrent claims do not pick two jobs of one key, except for
-- jobs that came or went at the same moment; job_policy_slot then refuses the second, and `pgjq.claim` repeats.
--
-- Index: job_ready; then for each candidate job_policy_slot, job_key_due, and in strict order job_key_order and
-- done_blocked.
create function pgjq.pick_serial(queue_id integer, room integer) returns tid[]
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
#variable_conflict use_column
declare
    here constant integer := pick_serial.queue_id;
    is_strict constant boolean := (pick_serial.queue_id & 7) = 5;
    wanted integer := pick_serial.room;
    picked tid[] := '{}';
    met bigint[];
    behind bigint[];
    blocked bigint[];
    blockers bigint[];
    seen integer := 0;
    after_rank smallint := -32768;
    after_seq bigint := 0;
begin
    loop
        select array_agg(c.seq), max(c.rank) into met, after_rank
        from (
            select h.seq, h.rank from pgjq.job as h
            where h.ready and h.queue_id = here and (h.rank, h.seq) > (after_rank, after_seq)
            order by h.queue_id, h.rank, h.seq
            limit wanted for update skip locked
        ) as c;
        exit when met is null;
        after_seq := met[cardinality(met)];
        seen := seen + cardinality(met);

        -- In a later snapshot than the locks, so that it sees jobs that a concurrent claim has just taken.
        with candidate as materialized (
            select
                j.seq, j.ctid, j.rank, j.state, coalesce(j.singleton_key, '') as key, m.n,
                -- In strict order a failing job owns its key, even before an older job that was committed later.
                row_number() over (
                    partition by coalesce(j.singleton_key, '')
                    order by case when is_strict then -j.state else j.rank end, j.seq
                ) as nth
            from unnest(met) with ordinality as m (seq, n)
            inner join pgjq.job as j on j.seq = m.seq and j.queue_id = here
        ),

        judged as materialized (
            select c.n, c.seq, c.ctid, c.nth, case when c.nth = 1 then coalesce(
                (
                    select p.seq from pgjq.job as p
                    where
                        p.queue_id = here and coalesce(p.singleton_key, '') = c.key
                        and pgjq.policy_slot(p.queue_id, p.state) = 1 and (p.queue_id & 7) > 0 and p.seq <> c.seq
                    limit 1
                ),
                case when is_strict then coalesce(
                    (
                        select l.seq from pgjq.job as l
                        where
                            l.queue_id = here and coalesce(l.singleton_key, '') = c.key and (l.queue_id & 7) = 5
                            and l.seq < c.seq and c.state = 0
                        order by l.seq limit 1
                    ),
                    (
                        select d.seq from pgjq.done as d
                        where
                            d.queue_id = here and d.singleton_key = c.key and (d.queue_id & 7) = 5 and d.state = 4
                            and not d.superseded
                        limit 1
                    )
                )
                else (
                    select r.seq from pgjq.job as r
                    where
                        r.queue_id = here and coalesce(r.singleton_key, '') = c.key and (r.queue_id & 7) in (2, 3, 5)
                        and r.ready and not r.blocked and (r.rank, r.seq) < (c.rank, c.seq)
                    order by r.blocked, r.rank, r.seq limit 1
                ) end
            ) end as blocker
            from candidate as c
        )

        select
            picked || coalesce(array_agg(v.ctid order by v.n) filter (where v.nth = 1 and v.blocker is null), '{}'),
            array_agg(v.seq) filter (where v.nth > 1),
            array_agg(v.seq) filter (where v.blocker is not null),
            array_agg(v.blocker) filter (where v.blocker is not null)
        into picked, behind, blocked, blockers
        from judged as v;

        -- Jobs behind another candidate are blocked by a row that this claim has locked itself.
        update pgjq.job as j set ready = false, blocked = true where j.queue_id = here and j.seq = any(behind);
        if blocked is not null then
            with sure as materialized (
                select g.seq
                from unnest(blocked, blockers) as g (seq, blocker)
                inner join pgjq.job as x on x.seq = g.blocker and x.queue_id = here
                -- The blocker may have changed since it was read: it must still block, and unblock a job at its end.
                where x.state = 1 or x.ready or (is_strict and (x.state = 2 or x.seq < g.seq))
                for share of x skip locked
            ),

            failed as materialized (
                select g.seq
                from unnest(blocked, blockers) as g (seq, blocker)
                inner join pgjq.done as x on x.seq = g.blocker and x.queue_id = here
                where is_strict and x.state = 4
                for share of x skip locked
            )

            update pgjq.job as j set ready = false, blocked = true
            where
                j.queue_id = here
                and j.seq = any(array(select s.seq from sure as s union all select f.seq from failed as f));
        end if;
        -- A job is blocked once, but there may be very many to block: the next claim continues.
        exit when cardinality(picked) >= room or cardinality(met) < wanted or seen >= 10000;
        wanted := greatest(room - cardinality(picked), least(2 * wanted, 1000));
    end loop;
    return picked[:room];
end
$$;

-- Unblock keys that have blocked jobs and no blocker. That happens only if an operator deletes rows by hand, or a
-- worker dies between a handler's own transaction and `pgjq.unblock_key_of_job`.
create function pgjq.unblock_forgotten_keys() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    forgotten record;
begin
    with blocked as materialized (
        select distinct h.queue_id, coalesce(h.singleton_key, '') as key from pgjq.job as h
        where h.blocked and (h.queue_id & 7) in (2, 3, 5)
    )

    select array_agg(k.queue_id) as queue_ids, array_agg(k.key) as keys into forgotten
    from blocked as k
    where
        not exists (
            select from pgjq.job as o
            where
                o.queue_id = k.queue_id and coalesce(o.singleton_key, '') = k.key and (o.queue_id & 7) > 0
                and (o.state = 1 or o.ready or ((o.queue_id & 7) = 5 and not o.blocked))
        )
        and not exists (
            select from pgjq.done as d
            where
                d.queue_id = k.queue_id and d.singleton_key = k.key and (d.queue_id & 7) = 5 and d.state = 4
                and not d.superseded
        );
    perform pgjq.unblock_keys(forgotten.queue_ids, forgotten.keys);
end
$$;

-- Unblock one job of each of these keys, and wake sleeping workers, after the blocker is gone.
--
-- The policy's order decides which job is first; the claim checks whether it may run.
-- Index: job_key_due, in strict order job_key_order: the first entry of each key.
create function pgjq.unblock_keys(queue_ids integer[], keys text[]) returns void
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
    woken integer[];
    missed boolean;
begin
    loop
        with freed as materialized (
            select distinct f.queue_id, coalesce(f.key, '') as key
            from unnest(queue_ids, keys) as f (queue_id, key)
            where (f.queue_id & 7) in (2, 3, 5)
        ),

        next as materialized (
            select
                f.queue_id, case when (f.queue_id & 7) = 5 then (
                    select case when l.blocked then l.seq end from pgjq.job as l
                    where l.queue_id = f.queue_id and coalesce(l.singleton_key, '') = f.key and (l.queue_id & 7) = 5
                    order by l.seq limit 1
                )
                else (
                    select h.seq from pgjq.job as h
                    where
                        h.queue_id = f.queue_id and coalesce(h.singleton_key, '') = f.key
                        and (h.queue_id & 7) in (2, 3, 5) and h.blocked
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
set jit = off
set enable_seqscan = off
as $$
begin
    perform pgjq.unblock_keys(array[d.queue_id], array[d.singleton_key]) from pgjq.done as d
    where d.seq = unblock_key_of_job.seq and d.queue_id = unblock_key_of_job.queue_id;
end
$$;
