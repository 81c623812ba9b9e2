-- Wake sleeping workers, without slowing producers down.
--
-- A commit that notifies takes a lock of the whole server, so a writer notifies only if a listener exists. A listener
-- shows itself by a shared advisory lock in its session: the lock ends with the session, and costs no write. A writer
-- checks by trying the exclusive lock and releasing it at once, about a microsecond. Two writers that check at the same
-- moment may take each other for a listener: one notification too many, never one too few.

-- A writer commits after its check, when a worker may have fallen asleep in between: a single statement by the time of
-- a disk sync, a longer transaction by any time. So a writer holds a shared lock on the queue until it ends (taken
-- before the check, so that either side sees the other), and a worker that finds such a lock reads again soon instead
-- of relying on a notification. A writer that cannot get the lock at once notifies: it never waits for a lock that any
-- login can take.

-- Must a writer notify the workers of a queue? Takes the shared lock of an uncommitted writer. Inlined.
create function pgjq.must_wake(queue text) returns boolean
language sql volatile
return not pg_try_advisory_xact_lock_shared(hashtext('pgjq.uncommitted'), hashtext($1)) or not (
    pg_try_advisory_lock(hashtext('pgjq.wake'), hashtext($1))
    and pg_advisory_unlock(hashtext('pgjq.wake'), hashtext($1))
);

-- Wake the workers that sleep on a queue, if there are any.
create function pgjq.wake(queue text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
    if pgjq.must_wake($1) then
        perform pg_notify('pgjq.wake', $1);
    end if;
end
$$;

-- Is a transaction open that has enqueued into one of these queues, and may not notify their workers?
create function pgjq.has_uncommitted_jobs(queues text[]) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    queue text;
begin
    foreach queue in array queues loop
        if not (
            pg_try_advisory_lock(hashtext('pgjq.uncommitted'), hashtext(queue))
            and pg_advisory_unlock(hashtext('pgjq.uncommitted'), hashtext(queue))
        ) then
            return true;
        end if;
    end loop;
    return false;
end
$$;
