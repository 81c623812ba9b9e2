-- Worker seen: record that a worker is alive, and since when. For display; no job depends on it.
--
-- Guarantees that a queue which a worker serves is on the list of queues, whatever a failover lost.
-- Without `common/`: its keys are those of the whole prefix, its arguments the time or '', the registration as rows.py writes
-- it, and its queues. A record is when the worker started and when it was last seen, in microseconds.
local WORKERS, QUEUES = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = ARGV[1] == '' and string.format('%.0f', time[1] * 1000000 + time[2]) or ARGV[1]
redis.call('HDEL', WORKERS, '')  -- A no-op that a full server allows: it then allows the writes that follow.
local known = redis.call('HGET', WORKERS, ARGV[2])
local started = known and string.match(known, '^%d+') or now
redis.call('HSET', WORKERS, ARGV[2], started .. ' ' .. now)
for n = 3, #ARGV do
    redis.call('SADD', QUEUES, ARGV[n])
end
return 1
