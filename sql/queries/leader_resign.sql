-- Resign leadership; true if this session had it.
select pg_advisory_unlock(hashtext(:lock), hashtext(:role))
