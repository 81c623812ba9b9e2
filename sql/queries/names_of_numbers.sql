-- Names of the numbers of queues, workers and states, for a history that is read without a lookup per row.
--
-- A queue or worker exists before any row of history refers to it; so a reader that runs this before reading knows all
-- names that can follow.
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
