-- Replies: jobs as rows.py reads them, and the jobs to reap.

-- A result begins with "r", an error's JSON with "e".
local function outcome_of(seq, job)
    if LIVE[job[STATE]] or is_fresh(job) then
        return redis.call('HGET', OUTCOMES, seq)
    end
    return false
end

-- A job as rows.py reads it, without its outcome, which may be any bytes and is a reply element of its own.
local function row_of(seq, job)
    local locked_until
    if job[STATE] == 'processing' then
        locked_until = tonumber(redis.call('ZSCORE', PROCESSING, seq))
        locked_until = locked_until < math.huge and locked_until
    end
    local ended = not LIVE[job[STATE]]
    return {
        seq, job[ID], job[STATE], as_text(job[CREATED]), job[ATTEMPTS], job[MAX_ATTEMPTS], job[PRIORITY],
        ended and cjson.null or as_text(job[RUN_AT]), as_text(job[STARTED]), as_text(job[FINISHED]),
        as_text(locked_until), job[WORKER], job[LEASE], job[STALLED], job[SINGLETON_KEY], job[STALLED_ON] or {},
        job[TASK] or false, job[HEADERS] or false
    }
end

-- Claimed jobs as rows.py reads them: their rows, then a payload for each, then the checkpoints that exist.
local function claimed_reply(seqs)
    local rows, reply = {}, call_in_chunks('HMGET', PAYLOADS, seqs)
    local checkpoints = redis.call('HLEN', CHECKPOINTS) > 0 and call_in_chunks('HMGET', CHECKPOINTS, seqs) or {}
    for n, seq in ipairs(seqs) do
        local job = jobs[seq]
        rows[n] = {
            seq, job[ID], job[LEASE], as_text(job[TOKEN]), job[ATTEMPTS], job[MAX_ATTEMPTS], as_text(job[CREATED]),
            as_text(job[LEASE_DURATION]), as_text(job[EXPIRE_AT] and job[EXPIRE_AT] - job[STARTED]), job[OPTIONS],
            checkpoints[n] and #reply or false, job[TASK] or false, job[HEADERS] or false
        }
        if checkpoints[n] then
            reply[#reply + 1] = checkpoints[n]
        end
    end
    table.insert(reply, 1, cjson.encode(rows))
    return reply
end

-- The jobs to reap, up to `limit`, the most overdue first. They include expired attempts of live workers; `stale_age`
-- applies to expired leases only.
local function overdue_jobs()
    local limit, latest = request.limit, NOW - request.stale_age
    local seqs = redis.call('ZRANGEBYSCORE', PROCESSING, '-inf', latest, 'LIMIT', 0, limit)
    load_jobs(seqs)
    if #seqs < limit and request.stale_age > 0 then
        local lapsed = redis.call('ZRANGEBYSCORE', PROCESSING, '(' .. as_text(latest), NOW)
        load_jobs(lapsed)
        for _, seq in ipairs(lapsed) do
            if #seqs < limit and jobs[seq][EXPIRE_AT] and jobs[seq][EXPIRE_AT] <= NOW then
                seqs[#seqs + 1] = seq
            end
        end
    end
    return seqs
end
