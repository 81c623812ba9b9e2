-- Seen: note that a worker was seen, and forget those that were not for a while. For people; no job depends on it.
--
-- Guarantees that a queue which somebody serves is on the list of queues, whatever a failover forgot.
-- Stands alone: its keys are those of the whole prefix, its arguments the time or '', the worker, its queues as JSON or
-- '', and the microseconds after which a worker is forgotten.
local WORKERS, SEEN, QUEUES = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = ARGV[1] == '' and time[1] * 1000000 + time[2] or tonumber(ARGV[1])
redis.call('HDEL', WORKERS, '')
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', SEEN, '-inf', now - ARGV[4], 'LIMIT', 0, 100)) do
    redis.call('ZREM', SEEN, worker)
    redis.call('HDEL', WORKERS, worker)
end
local known = redis.call('HGET', WORKERS, ARGV[2])
known = known and cmsgpack.unpack(known)
local queues = ARGV[3] ~= '' and ARGV[3] or known and known[1] or '[]'
redis.call('HSET', WORKERS, ARGV[2], cmsgpack.pack({queues, known and known[2] or now}))
redis.call('ZADD', SEEN, now, ARGV[2])
for _, queue in ipairs(cjson.decode(queues)) do
    redis.call('SADD', QUEUES, queue)
end
return 1
