-- Workers: those that are alive first, then those that fell silent within a day. See sql/views/0001_monitoring.sql.
select w.worker, w.queues, w.started_at, w.last_seen, w.running, w.alive
from pgjq.workers as w
order by w.alive desc, w.started_at asc, w.worker asc
