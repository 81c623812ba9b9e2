-- Workers: live ones first, then those that went silent within a day. See sql/views/0001_workers.sql.
select w.worker, w.queues, w.started_at, w.last_seen, w.running, w.alive
from pgjq.workers as w
order by w.alive desc, w.started_at asc, w.worker asc
