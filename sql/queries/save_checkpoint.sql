-- Save a checkpoint for the job's next run; returns a row if the lease still holds, else none. Guarantees:
-- sql/functions/0001_checkpoints.sql.
select s.seq
from pgjq.save_checkpoint(:queue_id::integer, :seq::bigint, :lease::integer, :checkpoint::bytea) as s (seq)
