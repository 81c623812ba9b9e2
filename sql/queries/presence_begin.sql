-- Say, for as long as this session lives, that somebody listens for :subject on :channel.
select pg_advisory_lock_shared(hashtext(:channel), case :subject when '' then 0 else hashtext(:subject) end)
