-- Reap: take back up to `limit` jobs whose deadline has passed, the most overdue first.
--
-- Guarantees
--   * Safe for any number of callers: a script is alone on the server while it runs.
--   * Found through the jobs' own deadlines, never through a list of workers.
--   * The decision is that of pgjq.lease.judge: a wish to cancel first, then the stall is counted, and over max_stalled,
--     or without attempts left, the job has failed; else it runs again after its retry delay (pgjq.retry.retry_delay).
--   * A full server does not refuse it.
insist()
math.randomseed(request.seed)

local function retry_delay(job)
    local options = options_of(job)
    if not options.retry_backoff then
        return micros(options.retry_delay or 0)
    end
    local half = 2 ^ math.min(16, job[ATTEMPTS]) / 2
    local base = options.retry_delay or 1
    local delay = (base == 0 and 1 or base) * (half + half * math.random())
    return micros(math.min(options.retry_delay_max or math.huge, delay))
end

local function judge(job)
    if job[CANCEL] then
        return 'cancelled'
    elseif job[MAX_STALLED] and job[STALLED] + 1 > job[MAX_STALLED] then
        return 'failed'
    elseif job[ATTEMPTS] >= job[MAX_ATTEMPTS] and not job[REQUEUE] then
        return 'failed'
    end
    return 'recovered'
end

local function take_back(seq, job)
    local action = judge(job)
    local expired = job[EXPIRE_AT] and job[EXPIRE_AT] <= NOW
    local reason = expired and 'expired' or 'lease'
    if action ~= 'cancelled' then
        job[STALLED] = job[STALLED] + 1
    end
    tell('stalled', job, job[STALLED], action, reason)
    if action == 'recovered' then
        give_back(seq, job, 'failing', retry_delay(job))
    elseif action == 'failed' then
        local what = expired and 'the attempt took too long' or 'its worker went silent'
        local message = what .. ' (worker ' .. job[WORKER] .. ')'
        finish(seq, job, action, 'e' .. cjson.encode({type = 'Stalled', message = message, traceback = cjson.null}))
    else
        finish(seq, job, action)
    end
    tell(job[STATE], job)
    return {redis.call('ZSCORE', PROCESSING, seq), seq, job[ID], job[STALLED], job[ATTEMPTS], action, reason}
end

local rows = {}
for _, seq in ipairs(overdue()) do
    rows[#rows + 1] = take_back(seq, jobs[seq])
end
done()
return cjson.encode(rows)
