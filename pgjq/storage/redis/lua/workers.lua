-- Workers: those that were seen within some microseconds, ARGV[2], each with its queues (JSON), its start and when it was
-- last seen. Stands alone, as seen.lua does.
local WORKERS, SEEN = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = ARGV[1] == '' and time[1] * 1000000 + time[2] or tonumber(ARGV[1])
local reply = {}
local lately = redis.call('ZRANGEBYSCORE', SEEN, '(' .. string.format('%.0f', now - ARGV[2]), '+inf', 'WITHSCORES')
for n = 1, #lately, 2 do
    local queues, started = unpack(cmsgpack.unpack(redis.call('HGET', WORKERS, lately[n])))
    reply[#reply + 1] = {lately[n], queues, started, tonumber(lately[n + 1])}
end
return reply
