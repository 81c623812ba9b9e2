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
