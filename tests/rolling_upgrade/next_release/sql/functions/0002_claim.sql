-- A claim that marks its jobs. `pgjq.claim` stays for workers of the version before.
create function pgjq.claim_with_attention(
    queues text[], worker integer, "limit" integer, lease double precision, expire double precision,
    max_stalled integer, requeue_exhausted boolean, claim_id bigint, after_ranks smallint[], after_seqs bigint[]
) returns setof pgjq.claimed_job
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    claimed pgjq.claimed_job;
begin
    for claimed in
        select * from pgjq.claim(
            queues, worker, "limit", lease, expire, max_stalled, requeue_exhausted, claim_id, after_ranks, after_seqs
        )
    loop
        update pgjq.job as j set attention = 1 where j.seq = claimed.seq and j.queue_id = claimed.queue_id;
        return next claimed;
    end loop;
end
$$;

create or replace function pgjq.schema_version() returns integer
language sql immutable parallel safe
return 2;
