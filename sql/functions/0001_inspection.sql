-- What the web page asks for. Each function reads a bounded number of rows, whatever the tables hold.

-- The place of an error: file, line and function of the last frame in its traceback, such as `mail.py:12 in send`.
create function pgjq.error_place(error text) returns text
language sql immutable parallel safe
return (
    select m.part[1] || ':' || m.part[2] || ' in ' || m.part[3]
    from regexp_matches(
            right(error, 4000), 'File \\"(?:[^"\\]*[/\\])?([^"/\\]+)\\", line (\d+), in ([^\\"]+)', 'g'
        ) with ordinality as m (part, position)
    order by m.position desc limit 1
);

-- Jobs by their numbers, in the order given, without payloads and results, and with excerpts of errors. Superseded and
-- missing ones are left out. Index: the primary keys; in a function, because a monitor may read excerpts only.
create function pgjq.describe_jobs(queue_ids integer[], seqs bigint[]) returns table (
    seq bigint, queue text, id text, state text, created_at timestamptz, attempts smallint, max_attempts smallint,
    priority integer, run_at timestamptz, started_at timestamptz, finished_at timestamptz, locked_until timestamptz,
    worker text, stalled smallint, singleton_key text, task text, error_type text,
    error_message text, error_place text
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    return query
    select
        b.seq, (select q.name from pgjq.queue as q where q.id = b.queue_id), b.id,
        (array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'])[coalesce(j.state, d.state) + 1],
        b.created_at, coalesce(j.attempts, d.attempts), coalesce(j.max_attempts, d.max_attempts),
        -coalesce(j.rank, d.rank)::integer, j.run_at, coalesce(j.started_at, d.started_at), d.finished_at,
        j.locked_until, (select w.name from pgjq.worker as w where w.id = coalesce(j.worker_id, d.worker_id)),
        coalesce(j.stalled, d.stalled), coalesce(j.singleton_key, d.singleton_key), b.task,
        pgjq.error_excerpt(e.error, 'type'), pgjq.error_excerpt(e.error, 'message'), pgjq.error_place(e.error)
    from unnest(queue_ids, seqs) with ordinality as wanted (queue_id, seq, position)
    inner join pgjq.body as b on wanted.seq = b.seq and wanted.queue_id = b.queue_id
    left join pgjq.job as j on wanted.seq = j.seq and wanted.queue_id = j.queue_id
    left join pgjq.done as d on wanted.seq = d.seq and wanted.queue_id = d.queue_id
    left join lateral (
        select case
                when j.seq is null then d.error
                else (
                        select p.error from pgjq.progress as p
                        where p.seq = wanted.seq and p.queue_id = wanted.queue_id
                    )
            end as error
    ) as e on true
    where not b.superseded and (j.seq is not null or d.seq is not null)
    order by wanted.position;
end
$$;

-- Statistics of the minutes that have passed since the last call, at most ten, and none older than a day. Waits and run
-- times are medians of a sample: reading the age of every job would cost more than all the rest. Index: done_finished.
create function pgjq.record_minutes() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    upto timestamptz := date_trunc('minute', pgjq.now() - interval '5 seconds');
    since timestamptz := greatest(
        upto - interval '10 minutes', (select max(m.at) + interval '1 minute' from pgjq.minute as m)
    );
begin
    if since >= upto then
        return;
    end if;
    delete from pgjq.minute as m where m.at < upto - interval '1 day';
    with ended as materialized (
        select
            d.queue_id, d.seq, d.state, date_trunc('minute', d.finished_at) as at, d.started_at,
            extract(epoch from d.finished_at - d.started_at)::real as ran,
            random() < 2000.0 / count(*) over () as sampled
        from pgjq.done as d
        where d.finished_at >= since and d.finished_at < upto
    ),

    backlog as (
        select
            q.id, coalesce((q.stats ->> 'ready')::bigint, 0) as ready, (q.stats ->> 'oldest_ready_age')::real as oldest
        from pgjq.queue as q
    )

    insert into pgjq.minute (at, queue_id, completed, failed, cancelled, waited, ran, ready, oldest)
    select
        e.at, e.queue_id, count(*) filter (where e.state = 3), count(*) filter (where e.state = 4),
        count(*) filter (where e.state = 5),
        percentile_cont(0.5) within group (
            order by case when e.sampled then (
                select extract(epoch from e.started_at - b.created_at) from pgjq.body as b
                where b.seq = e.seq and b.queue_id = e.queue_id
            ) end
        ),
        percentile_cont(0.5) within group (order by case when e.sampled then e.ran end),
        coalesce(max(l.ready), 0), max(l.oldest)
    from ended as e
    left join backlog as l on e.queue_id = l.id
    group by e.at, e.queue_id
    on conflict do nothing;
    -- Queues that wait and ended nothing; the last minute also marks how far this has come, with queue number 0.
    insert into pgjq.minute (at, queue_id, completed, failed, cancelled, ready, oldest)
    select
        upto - interval '1 minute', q.id, 0, 0, 0, (q.stats ->> 'ready')::bigint,
        (q.stats ->> 'oldest_ready_age')::real
    from pgjq.queue as q
    where (q.stats ->> 'ready')::bigint > 0
    union all
    select upto - interval '1 minute', 0, 0, 0, 0, 0, null
    on conflict do nothing;
end
$$;

-- Write down an action before it is taken, and forget those of more than a year ago; return its number.
create function pgjq.begin_action(actor text, action text, queue text, ids text[]) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    number bigint;
begin
    delete from pgjq.audit as a where a.at < pgjq.now() - interval '1 year';
    insert into pgjq.audit (actor, action, queue, ids)
    values (begin_action.actor, begin_action.action, begin_action.queue, begin_action.ids)
    returning audit.id into number;
    return number;
end
$$;

-- Write down how many jobs an action changed; once.
create function pgjq.end_action(number bigint, changed bigint) returns void
language sql volatile
begin atomic
    update pgjq.audit set count = changed where id = number and count is null;
end;
