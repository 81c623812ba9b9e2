-- Checkpoints of running jobs.

-- Save a checkpoint for a job's next run, and return the job's number, if the lease still holds.
--
-- The job's row is locked first, so that no reaper or new claim comes between the check and the write.
-- Index: the primary keys.
create function pgjq.save_checkpoint(queue_id integer, seq bigint, lease integer, checkpoint bytea) returns setof bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    return query
    with locked as materialized (
        select j.queue_id, j.seq from pgjq.job as j
        where
            j.seq = save_checkpoint.seq and j.queue_id = save_checkpoint.queue_id and j.lease = save_checkpoint.lease
            and j.state + 0 = 1
        for no key update
    )

    insert into pgjq.progress as p (queue_id, seq, checkpoint)
    select k.queue_id, k.seq, save_checkpoint.checkpoint from locked as k
    on conflict (seq, queue_id) do update set checkpoint = excluded.checkpoint
    returning p.seq;
end
$$;
