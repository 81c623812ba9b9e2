-- Enqueue a batch as graphile-worker's own bulk call does.
select count(*)
from graphile_worker.add_jobs(array(
    select spec from json_populate_recordset(null::graphile_worker.job_spec, %(jobs)s::json) as spec
))
