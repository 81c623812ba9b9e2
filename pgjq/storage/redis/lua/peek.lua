-- Peek: microseconds until a job is due, 0 if one is; nil when none is there.
--
-- Whoever is told to wait is noted as asleep by the same script: the next job that is put in place is announced, once.
-- So no job can slip in between a look and a sleep, and nobody is told of jobs while everybody is awake.
if redis.call('ZCARD', READY) > 0 then
    return 0
end
local first = redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(0, tonumber(first[2]) - NOW)
if due ~= 0 then
    insist()
    redis.call('HSET', META, 'asleep', 1)
end
return due or false
