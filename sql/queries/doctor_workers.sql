-- Doctor: workers that were seen within a day, the longest silent first. See the view workers.
select
    w.name as worker, max(r.heartbeat) as heartbeat,
    min(extract(epoch from pgjq.now() - r.last_seen))::double precision as silent_for
from pgjq.registration as r
inner join pgjq.worker as w on r.worker_id = w.id
where r.last_seen > pgjq.now() - interval '1 day'
group by w.name
order by silent_for desc
limit :limit
