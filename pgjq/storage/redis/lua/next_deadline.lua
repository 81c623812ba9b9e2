-- Next deadline: microseconds until a processing job's deadline passes, below 0 if one has passed; nil without one.
local first = redis.call('ZRANGE', PROCESSING, 0, 0, 'WITHSCORES')
local at = tonumber(first[2])
if not at or at == math.huge then
    return false
end
return at - NOW
