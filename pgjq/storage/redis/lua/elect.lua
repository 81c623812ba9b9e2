-- Elect: take a leadership that is free, or renew the candidate's own; another leader's is not touched. Without `common/`.
--
-- A full server must not refuse it, because the reaper that recovers stalled jobs and prunes is elected: so the first
-- write is a no-op that a full server allows.
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif owner then
    return 0
end
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
