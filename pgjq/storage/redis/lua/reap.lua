-- Reap: recover, fail or cancel up to `limit` jobs whose deadline has passed, the most overdue first. The payloads of
-- the failed ones follow the rows.
--
-- Guarantees
--   * Safe for any number of callers: a script is alone on the server while it runs.
--   * Stalled jobs are found through their own deadlines, never through a list of workers.
--   * Decides as pgjq.lease.judge: a requested cancellation wins; else the stall is counted, and over max_stalled, or
--     without attempts left, the job fails; else it runs again after its retry delay (pgjq.retry.retry_delay).
--   * Records the last twenty workers that the job stalled on, and why it stalled last.
--   * A full server does not refuse it.
allow_when_full()
math.randomseed(request.seed)

local function retry_delay(job)
    local options = options_of(job)
    if not options.retry_backoff then
        return to_micros(options.retry_delay or 0)
    end
    local half = 2 ^ math.min(16, job[ATTEMPTS]) / 2
    local base = options.retry_delay or 1
    local delay = (base == 0 and 1 or base) * (half + half * math.random())
    return to_micros(math.min(options.retry_delay_max or math.huge, delay, 3155760000))
end

local function judge(job)
    if job[CANCEL_REQUESTED] then
        return 'cancelled'
    elseif job[MAX_STALLED] and job[STALLED] + 1 > job[MAX_STALLED] then
        return 'failed'
    elseif job[ATTEMPTS] >= job[MAX_ATTEMPTS] and not job[REQUEUE_EXHAUSTED] then
        return 'failed'
    end
    return 'recovered'
end

-- The messages are those of pgjq.lease.explain.
local function record_stall(job, expired)
    local on = job[STALLED_ON] or {}
    on[#on + 1] = job[WORKER]
    if #on > 20 then
        table.remove(on, 1)
    end
    job[STALLED], job[STALLED_ON] = job[STALLED] + 1, on
    local what = expired and 'the attempt took too long' or 'its worker went silent'
    local message = what .. ' (worker ' .. job[WORKER] .. ')'
    return cjson.encode({type = 'Stalled', message = message, traceback = cjson.null})
end

local failed = {}

local function reap(seq, job)
    local action = judge(job)
    local expired = job[EXPIRE_AT] and job[EXPIRE_AT] <= NOW
    local reason, worker = expired and 'expired' or 'lease', job[WORKER]
    local error = action ~= 'cancelled' and record_stall(job, expired)
    record_attempt(seq, job, error and (expired and 'expired' or 'stalled') or 'cancelled', error)
    publish_event('stalled', job, job[STALLED], action, reason)
    if action == 'recovered' then
        add(OUTCOMES, seq, 'e' .. error)
        requeue(seq, job, 'failing', retry_delay(job))
    else
        end_job(seq, job, action, error and 'e' .. error)
    end
    if action == 'failed' then
        failed[#failed + 1] = seq
    end
    publish_event(job[STATE], job)
    return {
        redis.call('ZSCORE', PROCESSING, seq), seq, job[ID], job[STALLED], job[ATTEMPTS], job[MAX_ATTEMPTS], action,
        reason, worker, job[TASK] or false
    }
end

local rows = {}
for _, seq in ipairs(overdue_jobs()) do
    rows[#rows + 1] = reap(seq, jobs[seq])
end
write_changes()
local reply = call_in_chunks('HMGET', PAYLOADS, failed)
table.insert(reply, 1, cjson.encode(rows))
return reply
