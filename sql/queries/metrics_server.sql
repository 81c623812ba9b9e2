-- Metrics: age of the oldest snapshot, and how late the latest schedule is, in seconds.
select
    coalesce((select extract(epoch from max(s.open_for)) from pgjq.snapshots as s), 0)::double precision as snapshot,
    coalesce(
        (select extract(epoch from max(pgjq.now() - s.next_run_at)) from pgjq.schedules as s where not s.paused), 0
    )::double precision as late
