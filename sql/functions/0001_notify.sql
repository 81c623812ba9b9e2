-- Telling others, without hurting those who enqueue.
--
-- A commit that notifies takes a lock of the whole server, so nobody notifies unless somebody listens. A listener
-- says so by holding a shared advisory lock in its session: it goes when the session goes, and it costs no write. A
-- writer asks by trying the exclusive lock and giving it back at once, about a microsecond. Two writers asking at the
-- same moment may take each other for a listener: one notice too many, never one too few.

-- A transaction of several statements may commit long after its statement asked, when a worker has fallen asleep in
-- between. So it holds a shared lock on the queue until it ends (taken before it asks, so that either side sees the
-- other), and a worker that finds such a lock looks again soon instead of trusting a notification.

-- Wake the workers that sleep on a queue, if there are any.
create function pgjq.wake(queue text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if statement_timestamp() <> transaction_timestamp() then
        perform pg_advisory_xact_lock_shared(hashtext('pgjq.uncommitted'), hashtext($1));
    end if;
    if not (
        pg_try_advisory_lock(hashtext('pgjq.wake'), hashtext($1))
        and pg_advisory_unlock(hashtext('pgjq.wake'), hashtext($1))
    ) then
        perform pg_notify('pgjq.wake', $1);
    end if;
end
$$;

-- Is a transaction open that has something for the workers of one of these queues, and may not notify them?
create function pgjq.has_uncommitted(queues text[]) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    queue text;
begin
    foreach queue in array queues loop
        if not (
            pg_try_advisory_lock(hashtext('pgjq.uncommitted'), hashtext(queue))
            and pg_advisory_unlock(hashtext('pgjq.uncommitted'), hashtext(queue))
        ) then
            return true;
        end if;
    end loop;
    return false;
end
$$;

-- Does anybody subscribe to events?
create function pgjq.watched() returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return not (pg_try_advisory_lock(hashtext('pgjq.events'), 0) and pg_advisory_unlock(hashtext('pgjq.events'), 0));
end
$$;

-- One event as it goes over the wire: small, because a notice holds 8,000 bytes; who wants the result reads it.
create function pgjq.event(
    name text, queue text, id text, attempts integer,
    count integer default null, action text default null, reason text default null
) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_strip_nulls(json_build_object(
        'name', name, 'queue', queue, 'id', id, 'at', extract(epoch from pgjq.now()),
        'attempts', attempts, 'count', count, 'action', action, 'reason', reason
    ))::text
$$;

-- Put short texts together into as few JSON arrays as fit into a notice each, in their order.
create function pgjq.pages(texts text[]) returns setof text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select '[' || string_agg(sized.item, ',' order by sized.n) || ']'
    from (
        select t.item, t.n, sum(octet_length(t.item) + 1) over (order by t.n) / 4000 as page
        from unnest($1) with ordinality as t (item, n)
    ) as sized
    group by sized.page
$$;

-- Send events in as few notices as they fit in.
create function pgjq.publish(events text[]) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select count(pg_notify('pgjq.events', page)) from pgjq.pages($1) as page
$$;

-- Send an event for each of these jobs: what has become of it.
create function pgjq.tell(queue_ids integer[], seqs bigint[], states smallint[], attempts smallint[]) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pgjq.publish(array_agg(pgjq.event(
        (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[t.state + 1],
        q.name, b.id, t.attempts
    )))
    from unnest($1, $2, $3, $4) as t (queue_id, seq, state, attempts)
    inner join pgjq.body as b on b.seq = t.seq and b.queue_id = t.queue_id
    inner join pgjq.queue as q on q.id = t.queue_id
$$;
