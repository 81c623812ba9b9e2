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

-- Claim jobs of a queue whose policy lets one job of a key run at a time.
create function pgjq.claim_serial(
    queue text, queue_id integer, worker integer, "limit" integer, lease double precision, expire double precision,
    max_stalled integer, requeue_exhausted boolean, claim_id bigint
) returns setof pgjq.claimed_job
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    for n in 1..10 loop
        begin
            return query
            select c.* from pgjq.claim_planned(
                queue, queue_id, worker, "limit", lease, expire, max_stalled, requeue_exhausted, claim_id,
                pgjq.pick_serial(queue_id, "limit")
            ) as c;
            return;
        exception when unique_violation then
            -- A concurrent claim took another job of one of these keys at the same moment: repeat.
            continue;
        end;
    end loop;
end
$$;

-- Lock and return up to `limit` jobs of a queue that may run now, and block jobs of busy keys.
--
-- Candidates come from the head of job_ready, so that an older job of a busy key hides no other. A candidate is blocked
-- by a job of its key that is processing, or ready and before it; in strict order also by one that is failing or has
-- failed, and by any that was created before. So two concurrent claims do not pick two jobs of one key, except for
-- jobs that came or went at the same moment; job_policy_slot then refuses the second, and `pgjq.claim_serial` repeats.
--
-- Index: job_ready; then for each candidate job_policy_slot, job_key_due, and in strict order job_key_order and
-- done_blocked.
create function pgjq.pick_serial(queue_id integer, "limit" integer) returns tid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    this_queue constant integer := pick_serial.queue_id;
    is_strict constant boolean := pgjq.is_strict(pick_serial.queue_id);
    wanted integer := pick_serial."limit";
    picked tid[] := '{}';
    met bigint[];
    behind bigint[];
    blocked_seqs bigint[];
    blockers bigint[];
    seen integer := 0;
    after_rank smallint := -32768;
    after_seq bigint := 0;
begin
    loop
        select array_agg(c.seq), max(c.rank) into met, after_rank
        from (
            select h.seq, h.rank from pgjq.job as h
            where h.ready and h.queue_id = this_queue and (h.rank, h.seq) > (after_rank, after_seq)
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
            inner join pgjq.job as j on j.seq = m.seq and j.queue_id = this_queue
        ),

        judged as materialized (
            select c.n, c.seq, c.ctid, c.nth, case when c.nth = 1 then coalesce(
                (
                    select p.seq from pgjq.job as p
                    where
                        p.queue_id = this_queue and coalesce(p.singleton_key, '') = c.key
                        and pgjq.limits_keys(p.queue_id) and pgjq.policy_slot(p.queue_id, p.state) = 1
                        and p.seq <> c.seq
                    limit 1
                ),
                case when is_strict then coalesce(
                    (
                        select l.seq from pgjq.job as l
                        where
                            l.queue_id = this_queue and coalesce(l.singleton_key, '') = c.key
                            and pgjq.is_strict(l.queue_id) and l.seq < c.seq and c.state = 0
                        order by l.seq limit 1
                    ),
                    (
                        select d.seq from pgjq.done as d
                        where
                            d.queue_id = this_queue and d.singleton_key = c.key and pgjq.is_strict(d.queue_id)
                            and d.state = 4 and not d.superseded
                        limit 1
                    )
                )
                else (
                    select r.seq from pgjq.job as r
                    where
                        r.queue_id = this_queue and coalesce(r.singleton_key, '') = c.key and pgjq.is_serial(r.queue_id)
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
        into picked, behind, blocked_seqs, blockers
        from judged as v;

        perform pgjq.block_jobs(this_queue, behind, blocked_seqs, blockers);
        -- A job is blocked once, but there may be very many to block: the next claim continues.
        exit when cardinality(picked) >= pick_serial."limit" or cardinality(met) < wanted or seen >= 10000;
        wanted := greatest(pick_serial."limit" - cardinality(picked), least(2 * wanted, 1000));
    end loop;
    return picked[:pick_serial."limit"];
end
$$;

-- Block jobs that must wait for another job of their key: those behind a candidate of the same claim, which has locked
-- that row itself, and those whose blockers it can lock now.
create function pgjq.block_jobs(
    this_queue integer, behind bigint[], blocked_seqs bigint[], blockers bigint[]
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    is_strict constant boolean := pgjq.is_strict(this_queue);
begin
    update pgjq.job as j set ready = false, blocked = true where j.queue_id = this_queue and j.seq = any(behind);
    if blocked_seqs is null then
        return;
    end if;
    with locked as materialized (
        select g.seq
        from unnest(blocked_seqs, blockers) as g (seq, blocker)
        inner join pgjq.job as x on x.seq = g.blocker and x.queue_id = this_queue
        -- The blocker may have changed since it was read: it must still block, and unblock a job at its end.
        where x.state = 1 or x.ready or (is_strict and (x.state = 2 or x.seq < g.seq))
        for share of x skip locked
    ),

    failed as materialized (
        select g.seq
        from unnest(blocked_seqs, blockers) as g (seq, blocker)
        inner join pgjq.done as x on x.seq = g.blocker and x.queue_id = this_queue
        where is_strict and x.state = 4
        for share of x skip locked
    )

    update pgjq.job as j set ready = false, blocked = true
    where
        j.queue_id = this_queue
        and j.seq = any(array(select k.seq from locked as k union all select f.seq from failed as f));
end
$$;
