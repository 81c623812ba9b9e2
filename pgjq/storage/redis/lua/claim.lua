-- Claim: take up to `limit` due jobs, by priority and then by number; no two callers get the same job.
--
-- Guarantees
--   * Each claim raises the job's lease, counts an attempt, and records the deadlines and limits that the reaper reads.
--   * Delayed jobs that are due are promoted first, at most a thousand per call.
--   * A full server does not refuse it: stored jobs can be run.
allow_when_full()
local due = redis.call('ZRANGEBYSCORE', WAITING, '-inf', NOW, 'LIMIT', 0, 1000)
local ranks = {}
load_jobs(due)
for _, seq in ipairs(due) do
    ranks[#ranks + 1], ranks[#ranks + 2] = -jobs[seq][PRIORITY], seq
end
call_in_chunks('ZREM', WAITING, due)
call_in_chunks('ZADD', READY, ranks)

local function earlier_of(one, other)
    return one and other and math.min(one, other) or one or other
end

local seqs = {}
for n, value in ipairs(redis.call('ZPOPMIN', READY, request.limit)) do
    if n % 2 == 1 then
        seqs[#seqs + 1] = value
    end
end
load_jobs(seqs)
for _, seq in ipairs(seqs) do
    local job = jobs[seq]
    local options = options_of(job)
    local lease_for = options.heartbeat_seconds and to_micros(options.heartbeat_seconds) or or_false(request.lease)
    local expire_for = options.expire_in_seconds and to_micros(options.expire_in_seconds) or or_false(request.expire)
    remove(LIVE[job[STATE]], seq)
    if job[RETENTION] then
        remove(PRUNABLE, seq)
    end
    job[STATE], job[WORKER], job[STARTED], job[TOKEN] = 'processing', request.worker, NOW, SERVER_TIME
    job[LEASE], job[ATTEMPTS] = job[LEASE] + 1, job[ATTEMPTS] + 1
    job[LEASE_DURATION], job[EXPIRE_AT] = lease_for, expire_for and NOW + expire_for
    job[MAX_STALLED], job[REQUEUE_EXHAUSTED] = or_false(request.max_stalled), request.requeue_exhausted
    job[CLAIM_ID] = or_false(request.claim_id)
    add(PROCESSING, earlier_of(lease_for and NOW + lease_for, job[EXPIRE_AT]) or 'inf', seq)
    changed[seq] = true
    publish_event('processing', job)
end
write_changes()
return claimed_reply(seqs)
