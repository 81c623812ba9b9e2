-- Everything known of jobs by their ids, but for their payloads: a row of the view `jobs` for each that is there.
--
-- Whoever knows a job's queue and id may ask, and cannot list what they do not know; that is why this is a function.
-- Its names were resolved when it was made, so it needs no search_path, and it is inlined: it costs what its statement
-- does. Index: body_id, then the primary keys.
create function pgjq.get_jobs(queue text, ids text[]) returns setof pgjq.jobs
language sql stable
begin atomic
    select v.* from pgjq.jobs as v
    where v.queue_id = (select q.id from pgjq.queue as q where q.name = $1) and v.id = any($2);
end;
