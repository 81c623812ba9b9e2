-- Claim: take up to `limit` due jobs, by priority and then by number; no two callers get the same one.
--
-- Guarantees
--   * Each claim raises the job's lease, counts an attempt, and records what the reaper will go by.
--   * A job whose time has come is found, however it was delayed; at most a thousand of them are promoted by one call.
--   * A full server does not refuse it: work that is there can be done.
-- Answers nil for a queue that is not on the list of queues: nobody would take its jobs back.
if not redis.call('HGET', META, 'listed') then
    return false
end
insist()
for _, seq in ipairs(redis.call('ZRANGEBYSCORE', WAITING, '-inf', NOW, 'LIMIT', 0, 1000)) do
    redis.call('ZREM', WAITING, seq)
    redis.call('ZADD', READY, -read(seq)[PRIORITY], seq)
end

local function earlier(one, other)
    return one and other and math.min(one, other) or one or other
end

local rows, reply = {}, {}
local popped = redis.call('ZPOPMIN', READY, request.limit)
for n = 1, #popped, 2 do
    local seq = popped[n]
    local job = read(seq)
    local options = options_of(job)
    local lease_for = options.heartbeat_seconds and micros(options.heartbeat_seconds) or some(request.lease)
    local expire_for = options.expire_in_seconds and micros(options.expire_in_seconds) or some(request.expire)
    redis.call('ZREM', LIVE[job[STATE]], seq)
    redis.call('ZREM', PRUNABLE, seq)
    job[STATE], job[WORKER], job[STARTED], job[TOKEN] = 'processing', request.worker, NOW, REAL
    job[LEASE], job[ATTEMPTS] = job[LEASE] + 1, job[ATTEMPTS] + 1
    job[LEASE_FOR], job[EXPIRE_AT] = lease_for, expire_for and NOW + expire_for
    job[MAX_STALLED], job[REQUEUE] = some(request.max_stalled), request.requeue
    redis.call('ZADD', PROCESSING, earlier(lease_for and NOW + lease_for, job[EXPIRE_AT]) or 'inf', seq)
    write(seq, job)
    tell('processing', job)
    rows[#rows + 1] = {
        seq, job[ID], job[LEASE], text(REAL), job[ATTEMPTS], job[MAX_ATTEMPTS], text(job[CREATED]), text(lease_for),
        text(expire_for), job[OPTIONS]
    }
    reply[#reply + 1] = redis.call('HGET', PAYLOADS, seq)
    reply[#reply + 1] = redis.call('HGET', CHECKPOINTS, seq)
end
announce()
table.insert(reply, 1, cjson.encode(rows))
return reply
