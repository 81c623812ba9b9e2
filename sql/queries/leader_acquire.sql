-- Acquire leadership: the process that answers, and whether this session leads from now on. The server ends the session
-- if it is then silent for :ttl.
--
-- The lock is not taken unless the answering process is :greeted_by, the one that greeted this session: behind a
-- pooler the lock would stay with a session that other clients use, too.
select
    pg_backend_pid() as answering,
    case
        when pg_backend_pid() = :greeted_by
            then
                pg_try_advisory_lock(hashtext(:lock), hashtext(:role))
                and set_config('idle_session_timeout', :ttl, false) <> ''
        else false
    end as holds
