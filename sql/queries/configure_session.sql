-- Configure each new session of a pool; not behind a pooler, which shares sessions among clients.
--
-- Read committed: every statement of a function must see all earlier commits, whatever the database's default is or
-- becomes. The other settings let the server detect within half a minute that a client's host has vanished, and free
-- the row locks of its transactions; the server's default is two hours.
select
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false),
    pg_catalog.set_config('tcp_keepalives_idle', '10', false),
    pg_catalog.set_config('tcp_keepalives_interval', '5', false),
    pg_catalog.set_config('tcp_keepalives_count', '4', false),
    pg_catalog.set_config('tcp_user_timeout', '30000', false)
