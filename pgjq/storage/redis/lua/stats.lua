-- Stats: how many jobs are in each state now. Reads stored counts and set sizes; scans no jobs.
local function oldest(key)
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    return tonumber(first[2]) or math.huge
end

local ended = redis.call('HMGET', META, 'completed', 'failed', 'cancelled')
local since = math.min(oldest(QUEUED), oldest(FAILING))
return {
    redis.call('ZCARD', QUEUED), redis.call('ZCOUNT', QUEUED, '(' .. as_text(NOW), '+inf'),
    redis.call('ZCARD', PROCESSING), redis.call('ZCARD', FAILING), tonumber(ended[1]) or 0, tonumber(ended[2]) or 0, tonumber(ended[3]) or 0,
    since <= NOW and NOW - since
}
