-- Release: take running jobs away from their workers, without counting their attempts; return how many. Guarantees:
-- sql/functions/0001_release_and_reschedule.sql.
select pgjq.release_running(:queue::text, :ids::text::text[]) as jobs
