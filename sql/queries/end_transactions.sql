-- End the sessions with these application names: handlers' transactions whose jobs a reaper has just taken back.
--
-- Such a transaction can never commit, because its lease is lost. But a process that froze inside the block keeps its
-- row locks while it is frozen, and its TCP connection stays alive. Only sessions of the caller's own login are ended,
-- and only transactions that began before the reaping, :elapsed seconds ago: a later one belongs to the next run.
select pg_catalog.pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity as a
where
    a.application_name = any(:names::text::text[]) and a.datname = current_database() and a.usename = current_user
    and a.xact_start < statement_timestamp() - make_interval(secs => :elapsed::double precision)
