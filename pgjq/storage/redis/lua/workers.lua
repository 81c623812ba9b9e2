-- Workers: return the time, and every registration with its record. Without `common/`, as in worker_seen.lua.
local time = redis.call('TIME')
local now = ARGV[1] == '' and string.format('%.0f', time[1] * 1000000 + time[2]) or ARGV[1]
return {now, redis.call('HGETALL', KEYS[1])}
