-- Microseconds until the next deadline of a processing job passes, below 0 if one is overdue; nil when there is none.
local first = redis.call('ZRANGE', PROCESSING, 0, 0, 'WITHSCORES')
local at = tonumber(first[2])
if not at or at == math.huge then
    return false
end
return at - NOW
