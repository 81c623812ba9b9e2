-- Elect: take an office that is free, or prove to hold it and hold it longer; nobody else's is touched. Stands alone.
--
-- A full server does not refuse it, because whoever takes stalled jobs back and prunes is elected: the first write is one
-- that does nothing and that it allows.
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif owner then
    return 0
end
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
