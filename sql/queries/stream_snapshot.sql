-- Which rows of a :view can no longer change: all of transactions before `xmin`. A transaction that began earlier and
-- commits later has a number from there on, however long it takes. Each server counts its own transactions, and counts
-- some again on a new timeline, so the server's identifier and timeline are returned, too. The timeline is that of the
-- log that is being written: the control file has the new one only after a checkpoint.
--
-- A visible row is of a transaction before `xmax`, unless another server assigned the number: `restored`. Index:
-- done_xid or job_event_xid.
select
    (select c.system_identifier::text from pg_control_system() as c) as server,
    case
        when pg_is_in_recovery() then (select c.timeline_id from pg_control_checkpoint() as c)
        else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
    end as timeline,
    now.xmin, now.xmax,
    exists(select from pgjq.stream_row as d where d.view = :view::text and d.xid >= now.xmax) as restored,
    exists(select from pgjq.queue as q where q.name = :queue::text) as has_queue,
    pgjq.are_events_recorded() as are_events_recorded
from (
    select
        pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax
) as now
