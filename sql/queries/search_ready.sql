-- Search ready jobs of a queue in the order of claiming, :limit after :mark (rank, seq). Index: job_ready.
select j.queue_id, j.seq, j.rank || ' ' || j.seq as mark
from pgjq.job as j
where
    j.ready and j.queue_id = :queue_id
    and (j.rank, j.seq) > (
        coalesce(split_part(:mark::text, ' ', 1)::smallint, -32768), coalesce(split_part(:mark, ' ', 2)::bigint, 0)
    )
order by j.queue_id, j.rank, j.seq
limit :limit
