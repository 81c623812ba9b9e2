-- Settings of each session of a pool, once it is connected; not behind a pooler, where a session is not ours alone.
--
-- Read committed: every statement of a function has to see what was committed before it, whatever a database's own
-- default is, and whenever that is changed. The rest lets the server notice within half a minute that a client's host
-- has vanished, and free the row locks of its transactions; its own default is two hours.
select
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
    pg_catalog.set_config('tcp_keepalives_idle', '10', false),
    pg_catalog.set_config('tcp_keepalives_interval', '5', false),
    pg_catalog.set_config('tcp_keepalives_count', '4', false),
    pg_catalog.set_config('tcp_user_timeout', '30000', false)
