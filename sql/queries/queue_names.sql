-- Queue names: all queues, defined or made by their first job.
select q.name from pgjq.queue as q
order by q.name
