-- Resign leadership; true if this session had it. From now on the server ends the session if it is silent for :ttl,
-- the shortest time of its other leaderships; 0 if there is none.
select
    pg_advisory_unlock(hashtext(:lock), hashtext(:role))
    and set_config('idle_session_timeout', :ttl, false) <> '' as led
