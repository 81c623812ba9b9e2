-- Describe jobs by their numbers, those that match. Index: the primary keys; see sql/functions/0001_inspection.sql.
select d.*
from pgjq.describe_jobs(:queue_ids::integer[], :seqs::bigint[]) as d
where
    (:state::text is null or d.state = :state)
    and (:id::text is null or d.id = :id)
    and (:key::text is null or d.singleton_key = :key)
    and (:task::text is null or d.task = :task)
    and (
        :worker::text is null
        or d.worker = :worker
        or (
            d.stalled > 0
            and exists (select from pgjq.progress as p where p.seq = d.seq and :worker = any(p.stalled_on))
        )
    )
    and (:created_before::timestamptz is null or d.created_at < :created_before)
    and (:created_after::timestamptz is null or d.created_at >= :created_after)
    and (:ended_before::timestamptz is null or d.finished_at < :ended_before)
    and (:ended_after::timestamptz is null or d.finished_at >= :ended_after)
    and (
        :error::text is null
        or strpos(lower(concat_ws(': ', d.error_type, d.error_message)), lower(:error)) > 0
        or strpos(lower(d.error_place), lower(:error)) > 0
    )
