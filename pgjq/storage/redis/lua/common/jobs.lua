-- What happens to a job: it becomes claimable, ends, is deleted, or loses its id to another job.

-- Put a job where claims, or promotion, find it. If it waits there too long, prune.lua finds it by its run_at, or by
-- PRUNABLE if it has a retention of its own.
local function make_claimable(seq, job, run_at)
    job[RUN_AT] = run_at
    jobs[seq], changed[seq], earliest_run_at = job, true, math.min(earliest_run_at, run_at)
    add(LIVE[job[STATE]], run_at, seq)
    if run_at <= NOW then
        add(READY, -job[PRIORITY], seq)
    else
        add(WAITING, run_at, seq)
    end
    if job[RETENTION] then
        add(PRUNABLE, math.max(job[CREATED], run_at) + job[RETENTION], seq)
    end
end

-- Remove a job from the sets and counts of its state.
local function leave_state(seq, job)
    local state = job[STATE]
    if not LIVE[state] then
        counts[state] = (counts[state] or 0) - 1
        return
    end
    remove(LIVE[state], seq)
    if state ~= 'processing' then
        remove(READY, seq)
        remove(WAITING, seq)
        if job[RETENTION] then
            remove(PRUNABLE, seq)
        end
    end
end

-- Attempts: each run that did not complete has a field of its own, by the job's number and the run's lease, which counts
-- the runs. The completing run is the job's own record. Of each job the first run and the last nineteen are kept.
local function attempt_name(seq, number)
    return seq .. ':' .. number
end

-- The names of the attempts that are kept of a job that has run so often.
local function attempt_names(seq, count)
    local names = {count > 0 and attempt_name(seq, 1) or nil}
    for number = math.max(2, count - 18), count do
        names[#names + 1] = attempt_name(seq, number)
    end
    return names
end

-- Record the run that ends now; the caller has not changed the job yet.
local function record_attempt(seq, job, outcome, error)
    local number = job[LEASE]
    local attempt = {number, job[WORKER], as_text(job[STARTED]), as_text(NOW), outcome, error or cjson.null}
    add(ATTEMPTS_MADE, attempt_name(seq, number), cjson.encode(attempt))
    if number > 20 then
        remove(ATTEMPTS_MADE, attempt_name(seq, number - 19))
    end
end

-- End a run, but not the job.
local function requeue(seq, job, state, delay)
    leave_state(seq, job)
    job[STATE], job[WORKER], job[EXPIRE_AT] = state, false, false
    make_claimable(seq, job, NOW + delay)
end

-- End a job. A completed job needs its payload and checkpoint no more.
local function end_job(seq, job, state, outcome)
    leave_state(seq, job)
    job[STATE], job[EXPIRE_AT], job[FINISHED] = state, false, NOW
    changed[seq] = true
    notify_waiters(seq, job, true, outcome)
    counts[state] = (counts[state] or 0) + 1
    local expires_at = NOW + job[RESULT_TTL]
    if outcome then
        add(OUTCOMES, seq, outcome)
        add(EXPIRING, expires_at, seq)
    else
        remove(OUTCOMES, seq)
    end
    if state == 'completed' then
        remove(PAYLOADS, seq)
        remove(CHECKPOINTS, seq)
    end
    if job[DELETE_AFTER] > 0 then
        local deleted_at = NOW + job[DELETE_AFTER]
        add(PRUNABLE, state == 'cancelled' and deleted_at or math.max(deleted_at, expires_at), seq)
    end
end

-- Delete a job, and free its id, unless that belongs to another job by now.
local function delete_job(seq, job)
    if not job[SUPERSEDED] then
        leave_state(seq, job)
        remove(IDS, job[ID])
    end
    if LIVE[job[STATE]] then
        notify_waiters(seq, job)
    end
    jobs[seq], changed[seq] = false, nil
    for _, key in ipairs({JOBS, PAYLOADS, CHECKPOINTS, OUTCOMES}) do
        remove(key, seq)
    end
    if job[LEASE] > 1 or job[STATE] ~= 'completed' then
        for _, name in ipairs(attempt_names(seq, job[LEASE])) do
            remove(ATTEMPTS_MADE, name)
        end
    end
    for _, key in ipairs({ORDER, EXPIRING, PRUNABLE}) do
        remove(key, seq)
    end
end

-- Free the id of an ended job for a new one. Until its result expires, waiters of the old job can still read it by its
-- number; no other caller finds it.
local function supersede(seq, job)
    if not job[AWAITED] then
        delete_job(seq, job)
        return
    end
    leave_state(seq, job)
    job[SUPERSEDED], changed[seq] = true, true
    for _, key in ipairs({PAYLOADS, CHECKPOINTS, ORDER}) do
        remove(key, seq)
    end
    add(PRUNABLE, NOW + job[RESULT_TTL], seq)
end

-- Delete expired results and errors, a few at a time. No caller can read them any more.
local function delete_expired_outcomes(count)
    for _, seq in ipairs(redis.call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, count)) do
        remove(OUTCOMES, seq)
        remove(EXPIRING, seq)
    end
end
