-- Save a checkpoint for the job's next run, if the lease still holds: a row comes back then, else none. See
-- sql/functions/0001_settle.sql for what holds.
select s.seq
from pgjq.save_checkpoint(:queue_id::integer, :seq::bigint, :lease::integer, :checkpoint::bytea) as s (seq)
