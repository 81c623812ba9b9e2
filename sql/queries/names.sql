-- Names: what the numbers of queues, of workers and of states stand for, in a history that is read without looking up
-- each row's.
--
-- A queue, or a worker, that a row of history names was there before that row; so whoever asks before reading knows all
-- names that will come.
select
    'queue' as of, coalesce(array_agg(q.id), '{}') as numbers, coalesce(array_agg(q.name), '{}') as names
from pgjq.queue as q
union all
select
    'worker' as of, coalesce(array_agg(w.id), '{}') as numbers, coalesce(array_agg(w.name), '{}') as names
from pgjq.worker as w
union all
select
    'state' as of, array[0, 1, 2, 3, 4, 5] as numbers,
    array['queued', 'processing', 'failing', 'completed', 'failed', 'cancelled'] as names
