-- Show writers that this session listens for :subject on :channel, until presence_end or the end of the session.
select pg_advisory_lock_shared(hashtext(:channel), case :subject when '' then 0 else hashtext(:subject) end)
