-- Inspect workers: live ones first, :limit at the most. See sql/views/0001_monitoring.sql.
select w.worker, w.queues, w.started_at, w.last_seen, w.running, w.alive
from pgjq.workers as w
order by w.alive desc, w.started_at asc, w.worker asc
limit :limit
