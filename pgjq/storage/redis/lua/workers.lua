-- Workers: the time, and every registration with its record. Stands alone, as worker_seen.lua does.
local time = redis.call('TIME')
local now = ARGV[1] == '' and string.format('%.0f', time[1] * 1000000 + time[2]) or ARGV[1]
return {now, redis.call('HGETALL', KEYS[1])}
