-- Queue names: all queues, created by create_queue or by their first job.
select q.name from pgjq.queue as q
order by q.name
