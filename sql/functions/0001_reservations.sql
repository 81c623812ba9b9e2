-- Numbers of jobs, drawn before the jobs are enqueued.

-- Draw numbers for jobs that this transaction is about to enqueue; create the queue if it does not exist.
create function pgjq.reserve_numbers(queue text, count integer) returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    drawn bigint[];
begin
    perform pgjq.get_or_create_queue(queue);
    drawn := array(select nextval('pgjq.job_seq') from generate_series(1, count));
    if count > 0 then
        insert into pgjq.reservation (seqs) select range_agg(int8range(s.seq, s.seq, '[]')) from unnest(drawn) as s (seq);
        perform pgjq.delete_old_reservations();
    end if;
    return drawn;
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
