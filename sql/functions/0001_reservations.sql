-- Numbers of jobs, drawn before the jobs are enqueued.

-- Draw numbers for jobs that are about to be enqueued; also return the properties of their queue. For a caller that may
-- COPY the jobs itself, and does (`copying`), the numbers are not recorded in `reserved`.
create function pgjq.reserve_numbers(
    queue text, count integer, copying boolean default false,
    out queue_id integer, out at text, out options text, out seqs bigint[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    queue_id := pgjq.get_or_create_queue(queue);
    at := pgjq.now()::text;
    options := (select q.options::text from pgjq.queue as q where q.id = queue_id);
    seqs := array(select nextval('pgjq.job_seq') from generate_series(1, count));
    if count > 0 and (not copying or pgjq.limits_keys(queue_id)) then
        insert into pgjq.reservation (seqs) select range_agg(int8range(s.seq, s.seq, '[]')) from unnest(seqs) as s (seq);
        perform pgjq.delete_old_reservations();
    end if;
end
$$;

-- Delete reservations of ended transactions, without waiting for a lock.
create function pgjq.delete_old_reservations() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if current_setting('transaction_isolation') = 'read committed' then
        delete from pgjq.reservation as r where r.ctid = any(array(
            select o.ctid from pgjq.reservation as o
            where o.xid < pg_snapshot_xmin(pg_current_snapshot())
            for update skip locked
        ));
    end if;
end
$$;
