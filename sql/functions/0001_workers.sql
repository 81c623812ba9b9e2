-- Worker records.

-- Prune registrations of killed workers, a day after they count as dead, and names of workers that no record refers to;
-- return how many names.
--
-- History refers to workers by number, without an index. So checking whether a name is still needed reads all of it:
-- not before the default retention has passed since the worker was last seen, and then at most once a day.
create function pgjq.prune_workers() returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    old integer[];
    mentioned integer[];
begin
    delete from pgjq.registration as r
    where r.last_seen + make_interval(secs => 3 * r.heartbeat) <= pgjq.now() - interval '1 day';

    old := array(select w.id from pgjq.worker as w where w.prune_at <= pgjq.now() for update skip locked);
    if old = '{}' then
        return 0;
    end if;

    mentioned := array(
        select d.worker_id from pgjq.done as d where d.worker_id = any(old)
        union
        select j.worker_id from pgjq.job as j where j.state = 1 and j.worker_id = any(old)
        union
        select r.worker_id from pgjq.registration as r where r.worker_id = any(old)
    );
    update pgjq.worker as w set prune_at = pgjq.now() + interval '1 day' where w.id = any(mentioned);
    delete from pgjq.worker as w where w.id = any(old) and not w.id = any(mentioned);
    return cardinality(old) - cardinality(mentioned);
end
$$;
