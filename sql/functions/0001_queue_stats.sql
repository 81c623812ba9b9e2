-- Counts of every queue's jobs.

-- Count every queue's jobs by state and store the counts; return queues that have grown past their warning_queue_size,
-- each once until it has been shorter again.
--
-- One pass over the live jobs of all queues; over the endings only on request, because they may be many.
create function pgjq.record_queue_stats(with_endings boolean) returns table (queue text, count integer, size integer)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if record_queue_stats.with_endings then
        perform pgjq.unblock_forgotten_keys();
    end if;
    with live as materialized (
        select
            j.queue_id,
            count(*) filter (where j.state = 0 and j.run_at > pgjq.now()) as deferred,
            count(*) filter (where j.state = 0 and j.run_at <= pgjq.now()) as ready,
            count(*) filter (where j.state = 1) as processing,
            count(*) filter (where j.state = 2) as failing,
            extract(epoch from pgjq.now() - min(j.run_at) filter (where j.state <> 1 and j.run_at <= pgjq.now())) as age
        from pgjq.job as j
        group by j.queue_id
    ),

    ended as materialized (
        select
            d.queue_id,
            count(*) filter (where d.state = 3) as completed,
            count(*) filter (where d.state = 4) as failed,
            count(*) filter (where d.state = 5) as cancelled
        from pgjq.done as d
        where record_queue_stats.with_endings and not d.superseded
        group by d.queue_id
    )

    update pgjq.queue as q
    set stats = coalesce(q.stats, '{}') || jsonb_build_object(
        'deferred', coalesce(l.deferred, 0), 'ready', coalesce(l.ready, 0), 'processing', coalesce(l.processing, 0),
        'failing', coalesce(l.failing, 0), 'oldest_ready_age', l.age, 'counted_at', pgjq.now()
    ) || case when record_queue_stats.with_endings then jsonb_build_object(
        'completed', coalesce(e.completed, 0), 'failed', coalesce(e.failed, 0), 'cancelled', coalesce(e.cancelled, 0)
    ) else '{}' end
    from pgjq.queue as o
    left join live as l on l.queue_id = o.id
    left join ended as e on e.queue_id = o.id
    where q.id = o.id;

    return query
    with sized as (
        select
            q.id, q.name, q.warned, q.warning_queue_size as size,
            ((q.stats ->> 'deferred')::bigint + (q.stats ->> 'ready')::bigint + (q.stats ->> 'failing')::bigint)::integer
                as waiting
        from pgjq.queue as q
    ),

    crossed as (
        update pgjq.queue as q set warned = not q.warned
        from sized as s
        where q.id = s.id and q.warned <> coalesce(s.waiting > s.size, false)
        returning q.name, q.warned, s.waiting, s.size
    )

    select c.name, c.waiting, c.size from crossed as c where c.warned;
end
$$;
