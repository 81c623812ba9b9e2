-- Read jobs by id.

-- The full status of jobs by id, without payloads: a row of the view `jobs` for each job that exists.
--
-- A caller that knows a job's queue and id may read it, but cannot list other jobs; that is why this is a function.
-- Its names were resolved when it was created, so it needs no search_path, and it is inlined: it costs the same as its
-- statement. Index: body_id, then the primary keys.
create function pgjq.get_jobs(queue text, ids text[]) returns setof pgjq.jobs
language sql stable
begin atomic
    select v.* from pgjq.jobs as v
    where v.queue_id = (select q.id from pgjq.queue as q where q.name = $1) and v.id = any($2);
end;

-- The ended runs of a job by its id, oldest first: those in `attempt`, and the completing one, which is in `done`.
--
-- Twenty at most, as in `attempt`. A caller that knows a job's queue and id may read them, as with `pgjq.get_jobs`.
-- Index: body_id, then the primary keys.
create function pgjq.get_attempts(queue text, job_id text) returns table (
    number integer, worker text, started_at timestamptz, ended_at timestamptz, outcome text, error text
)
language sql stable
begin atomic
    with named as (
        select b.seq, b.queue_id from pgjq.body as b
        where b.queue_id = (select q.id from pgjq.queue as q where q.name = $1) and b.id = $2 and not b.superseded
    ),

    runs as (
        select a.number, a.worker, a.started_at, a.ended_at, a.outcome, a.error
        from named as n
        inner join pgjq.attempt as a on n.seq = a.seq and n.queue_id = a.queue_id
        union all
        select d.lease, w.name, d.started_at, d.finished_at, 'completed', null
        from named as n
        inner join pgjq.done as d on n.seq = d.seq and n.queue_id = d.queue_id and d.state = 3
        left join pgjq.worker as w on d.worker_id = w.id
    )

    select r.number, r.worker, r.started_at, r.ended_at, r.outcome, r.error from runs as r
    where r.number = 1 or r.number > (select max(l.number) from runs as l) - 19
    order by r.number;
end;
