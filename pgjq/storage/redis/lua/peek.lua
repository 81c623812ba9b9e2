-- Peek: microseconds until a job is due, 0 if one is; nil when none is there.
--
-- The script that tells a worker to wait also notes it as asleep, with the time of the next job: the first job that is
-- put in place for an earlier time is announced, once. So no job can slip in between a look and a sleep, and no
-- notification is sent while all workers are awake, or for a job that is due after those that a sleeper waits for.
if redis.call('ZCARD', READY) > 0 then
    return 0
end
local NEVER = '1e300'
local first = redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(0, tonumber(first[2]) - NOW)
if due ~= 0 then
    insist()
    redis.call('HSET', META, 'asleep', first[2] or NEVER)
end
return due or false
