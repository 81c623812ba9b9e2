-- Queue names: all queues, whoever created them.
select q.name from pgjq.queue as q
order by q.name
