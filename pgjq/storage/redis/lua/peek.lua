-- Peek: microseconds until a job is due, 0 if one is; nil without jobs.
--
-- When a worker has to wait, the same script records that it sleeps, and until which job's time: the first job that is
-- placed for an earlier time sends one notification. So no job is missed between the read and the sleep, and no
-- notification is sent while all workers are awake, or for a job that is due after the one that a sleeper waits for.
if redis.call('ZCARD', READY) > 0 then
    return 0
end
local NEVER = '1e300'
local first = redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(0, tonumber(first[2]) - NOW)
if due ~= 0 then
    allow_when_full()
    redis.call('HSET', META, 'asleep', first[2] or NEVER)
end
return due or false
