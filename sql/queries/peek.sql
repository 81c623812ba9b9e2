-- Peek: seconds until a job of these queues can be claimed; 0 or less: now; null: there is none.
--
-- At most a quarter of a second while a transaction that has enqueued is open: its commit may not notify.
--
-- Index: job_ready and job_waiting, the first entry of each.
select
    case
        when exists (
                select from pgjq.job as j
                where
                    j.ready
                    and j.queue_id in (
                        select q.id from pgjq.queue as q where q.name = any(:queues::text[]) and not q.paused
                    )
            ) then 0::double precision
        else least(
                (
                    select extract(epoch from min(w.run_at) - pgjq.now())::double precision from pgjq.job as w
                    where not w.ready and not w.blocked and w.state <> 1
                ),
                case when pgjq.has_uncommitted_jobs(:queues::text[]) then 0.25 end
            )
    end as seconds
