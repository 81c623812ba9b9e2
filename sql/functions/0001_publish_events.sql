-- Events for subscribers.

-- Are there subscribers to events? Inlined, as `pgjq.now` is: each enqueue, claim and settlement asks.
create function pgjq.has_subscribers() returns boolean
language sql volatile
return not (pg_try_advisory_lock(hashtext('pgjq.events'), 0) and pg_advisory_unlock(hashtext('pgjq.events'), 0));

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
