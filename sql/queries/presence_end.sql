-- Undo presence_begin.
select pg_advisory_unlock_shared(hashtext(:channel), case :subject when '' then 0 else hashtext(:subject) end)
