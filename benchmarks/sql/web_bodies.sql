-- A history of jobs of the first queue, before everything else: one a second.
insert into pgjq.body (seq, created_at, queue_id, id, payload)
select -n, now() - n * interval '1 second', q.id, 'd' || n, '1'
from generate_series(1, %(jobs)s) as n, pgjq.queue as q
where q.name = 'q0'
