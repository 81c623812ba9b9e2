-- Leave an office: true if this session held it.
select pg_advisory_unlock(hashtext(:office), hashtext(:role))
