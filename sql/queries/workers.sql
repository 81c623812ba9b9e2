-- Workers that were seen in the last :within seconds, and how many jobs each one runs.
select
    w.name, w.queues, w.started_at, w.last_seen,
    (select count(*) from pgjq.job as j where j.state = 1 and j.worker_id = w.id) as running
from pgjq.worker as w
where w.last_seen > pgjq.now() - make_interval(secs => :within)
order by w.name
