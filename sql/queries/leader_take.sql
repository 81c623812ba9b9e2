-- Take an office: true if this session leads from now on. The server ends a session that is then silent for :ttl.
select
    pg_try_advisory_lock(hashtext(:office), hashtext(:role)) and set_config('idle_session_timeout', :ttl, false) <> ''
