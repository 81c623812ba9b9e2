-- Names: what the numbers of queues and of workers stand for, in a history that is read without looking up each row's.
--
-- A queue, or a worker, that a row of history names was there before that row; so whoever asks before reading knows all
-- names that will come.
select
    'queue' as of, q.id, q.name
from pgjq.queue as q
union all
select
    'worker' as of, w.id, w.name
from pgjq.worker as w
