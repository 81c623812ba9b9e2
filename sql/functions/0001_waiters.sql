-- Waiters for a job: its state, and the notification of its end.

-- The states of jobs of a queue, found by number, so that an id that is another job by now does not matter; no row for
-- a job that is gone. Numbers can be guessed, so the caller must know the ids as well.
--
-- One snapshot, so each job is in exactly one of done and job. A result or error is not shown after its time to live. A
-- function, because it runs once for each awaited job, and planning took four fifths of its time. Index: the primary
-- keys.
create function pgjq.job_state(in_queue text, ids text[], seqs bigint[]) returns table (
    seq bigint, state smallint, attempts smallint, max_attempts smallint, result bytea, error text, expired boolean
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    this_queue constant integer := (select q.id from pgjq.queue as q where q.name = in_queue);
    known constant bigint[] := array(
        select b.seq from pgjq.body as b where b.seq = any(seqs) and b.queue_id = this_queue and b.id = any(ids)
    );
begin
    return query
    select
        d.seq, d.state, d.attempts, d.max_attempts,
        case when d.expires_at > pgjq.now() then d.result end,
        case when d.expires_at > pgjq.now() then d.error end,
        d.expires_at <= pgjq.now()
    from pgjq.done as d
    where d.seq = any(known) and d.queue_id = this_queue
    union all
    select j.seq, j.state, j.attempts, j.max_attempts, null::bytea, null::text, false
    from pgjq.job as j
    where j.seq = any(known) and j.queue_id = this_queue;
end
$$;

-- Return the number of the job that has this id now, and mark it, if it is live, so that its end notifies its waiters.
--
-- The mark and the end cannot miss each other: both lock the job's row. If the mark is first, the end sees it; if the
-- end is first, there is no row to mark, and the caller, which reads afterwards, finds the job in `done`.
-- Index: body_id, then the primary key.
create function pgjq.mark_awaited(in_queue text, job_id text) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    this_queue constant integer := (select q.id from pgjq.queue as q where q.name = in_queue);
    wanted constant bigint := (
        select b.seq from pgjq.body as b where b.queue_id = this_queue and b.id = job_id and not b.superseded
    );
begin
    update pgjq.job as j set awaited = true where j.seq = wanted and j.queue_id = this_queue and not j.awaited;
    return wanted;
end
$$;

-- The notification of a job's end for its waiters: queue, id and state, and never the result. No id means every job of
-- the queue: a deleted queue sends one notification, however many jobs it had.
create function pgjq.end_notification(queue text, id text, state text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select json_build_array(queue, id, state)::text
$$;

-- Notify the waiters of these jobs of their ends. Only jobs with the mark `awaited` are notified.
create function pgjq.notify_waiters(endings text[]) returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select count(pg_notify('pgjq.results', page)) from pgjq.notification_pages($1) as page
$$;

-- Notify the waiters of a batch of jobs, found by number. Jobs without a state are about to be deleted, and their
-- bodies must still exist. A function, so that settling a job without waiters plans none of this.
create function pgjq.notify_waiters_of_jobs(queue_ids integer[], seqs bigint[], states smallint[]) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgjq.notify_waiters(array_agg(pgjq.end_notification(
        q.name, b.id, coalesce((array['completed', 'failed', 'cancelled'])[j.state - 2], 'deleted')
    )))
    from unnest(queue_ids, seqs, states) as j (queue_id, seq, state)
    inner join pgjq.body as b on j.seq = b.seq and j.queue_id = b.queue_id
    inner join pgjq.queue as q on j.queue_id = q.id;
end
$$;
