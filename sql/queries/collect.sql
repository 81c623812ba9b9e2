-- The states, results and errors of jobs by their ids; nulls for an id that no job has.
--
-- Index: body_id, then the primary keys.
select
    i.id, j.state, convert_from(j.result, 'UTF8') as result, j.error, j.attempts::integer as attempts, j.started_at,
    j.finished_at
from unnest(:ids::text[]) as i (id)
left join pgjq.get_jobs(:queue::text, :ids::text[]) as j on i.id = j.id
