-- Notifications that do not slow producers down.
--
-- A commit that notifies takes a lock of the whole server, so a writer notifies only if a listener exists. A listener
-- shows itself by a shared advisory lock in its session: the lock ends with the session, and costs no write. A writer
-- checks by trying the exclusive lock and releasing it at once, about a microsecond. Two writers that check at the same
-- moment may take each other for a listener: one notification too many, never one too few.

-- A transaction of several statements may commit long after its check, when a worker has fallen asleep in between. So
-- it holds a shared lock on the queue until it ends (taken before the check, so that either side sees the other), and
-- a worker that finds such a lock reads again soon instead of relying on a notification. A writer that cannot get the
-- lock at once notifies: it never waits for a lock that any login can take.

-- Wake the workers that sleep on a queue, if there are any.
create function pgjq.wake(queue text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if (
        statement_timestamp() <> transaction_timestamp()
        and not pg_try_advisory_xact_lock_shared(hashtext('pgjq.uncommitted'), hashtext($1))
    ) or not (
        pg_try_advisory_lock(hashtext('pgjq.wake'), hashtext($1))
        and pg_advisory_unlock(hashtext('pgjq.wake'), hashtext($1))
    ) then
        perform pg_notify('pgjq.wake', $1);
    end if;
end
$$;

-- Is a transaction open that has enqueued into one of these queues, and may not notify their workers?
create function pgjq.has_uncommitted_jobs(queues text[]) returns boolean
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

-- Are there subscribers to events?
create function pgjq.has_subscribers() returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return not (pg_try_advisory_lock(hashtext('pgjq.events'), 0) and pg_advisory_unlock(hashtext('pgjq.events'), 0));
end
$$;

-- One event as JSON: small, because a notification holds 8,000 bytes; a subscriber that wants the result reads it.
create function pgjq.event(
    name text, queue text, id text, attempts integer,
    count integer default null, action text default null, reason text default null, task text default null
) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_strip_nulls(json_build_object(
        'name', name, 'queue', queue, 'id', id, 'at', extract(epoch from pgjq.now()),
        'attempts', attempts, 'count', count, 'action', action, 'reason', reason, 'task', task
    ))::text
$$;

-- Merge short texts into as few JSON arrays as fit into one notification each, in order.
create function pgjq.notification_pages(texts text[]) returns setof text
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

-- Publish events in as few notifications as possible.
create function pgjq.publish(events text[]) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select count(pg_notify('pgjq.events', page)) from pgjq.notification_pages($1) as page
$$;

-- Publish an event with the new state of each of these jobs.
create function pgjq.publish_states(
    queue_ids integer[], seqs bigint[], states smallint[], attempts smallint[]
) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pgjq.publish(array_agg(pgjq.event(
        (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[t.state + 1],
        q.name, b.id, t.attempts, task => b.task
    )))
    from unnest($1, $2, $3, $4) as t (queue_id, seq, state, attempts)
    inner join pgjq.body as b on b.seq = t.seq and b.queue_id = t.queue_id
    inner join pgjq.queue as q on q.id = t.queue_id
$$;
