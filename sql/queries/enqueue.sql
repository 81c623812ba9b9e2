-- Enqueue a batch; returned rows without a number were not added. Guarantees: sql/functions/0001_enqueue_jobs.sql.
-- The payloads are one value, cut here: parsing an array of them took a quarter of the server's time.
select e.n, e.status, e.state, e.result, e.seq
from pgjq.enqueue_jobs(
        :queue::text, :ids::text::text[],
        array(
            select substr(:payloads::bytea, p.start, p.size)
            from unnest(:starts::text::integer[], :sizes::text::integer[]) as p (start, size)
        ),
        :common::text::jsonb, :own::text::jsonb[], :seqs::text::bigint[], :numbered::boolean, :generated::boolean
    ) as e
order by e.n
