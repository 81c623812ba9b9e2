-- Common beginning of every queue script: the keys, the time, the fields of a job's record, and shared functions.
--
-- Rules
--   * KEYS are those of one queue, in the order of keys.py, and share a hash tag.
--   * Times are in microseconds since the epoch, by this server's clock. A test may pass another time: ARGV[1].
--   * A script reads first and then writes. Functions collect the changes in Lua's memory, and `done` writes them, with
--     one command for each key and not for each job.
--   * A full server (maxmemory) refuses a script at its first write or not at all, so that nothing is ever half-written.
--     Scripts that add jobs begin with a write that a full server refuses; scripts that work on stored jobs begin with
--     one that it allows, and so can always finish.
local META, JOBS, PAYLOADS, IDS, ORDER, READY, WAITING, QUEUED, PROCESSING, FAILING, CHECKPOINTS, OUTCOMES, EXPIRING,
    PRUNABLE = unpack(KEYS)
local LIVE = {queued = QUEUED, processing = PROCESSING, failing = FAILING}

local QUEUE, EVENTS, WAKE, ANSWERS, UNSEEN = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local request = cjson.decode(ARGV[7])
local BLOBS = 7
local CHUNK = 4000
local SHORT = 4096

local time = redis.call('TIME')
local REAL = time[1] * 1000000 + time[2]
local NOW = ARGV[1] == '' and REAL or tonumber(ARGV[1])

-- A job's record is an array; `false` means "none".
local ID, STATE, PRIORITY, MAX_ATTEMPTS, RESULT_TTL, SINGLETON, OPTIONS, RETENTION, KEEP, CREATED, RUN_AT, ATTEMPTS,
    LEASE, TOKEN, STALLED, CANCEL, WORKER, STARTED, EXPIRE_AT, FINISHED, LEASE_FOR, MAX_STALLED, REQUEUE, AWAITED,
    STALLED_ON, SUPERSEDED, CLAIM =
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27

local function some(value)
    if value == cjson.null or value == nil then
        return false
    end
    return value
end

-- cjson keeps only fourteen digits of a number, so larger numbers are sent as text.
local function text(number)
    return number and string.format('%.0f', number) or cjson.null
end

local function micros(seconds)
    return math.floor(seconds * 1000000 + 0.5)
end

-- Collected changes: for each key the arguments of a command that removes from it, and of one that then adds to it;
-- the jobs read so far, and which of them changed; the difference in the number of jobs per state.
local removed, added, jobs, changed, counts = {}, {}, {}, {}, {}
local events, notifications, placed = {}, {}, math.huge

local function args_of(collected, key)
    local args = collected[key]
    if not args then
        args = {}
        collected[key] = args
    end
    return args
end

local function remove(key, name)
    local args = args_of(removed, key)
    args[#args + 1] = name
end

-- A hash's field and its value, or a sorted set's score and its member.
local function add(key, first, second)
    local args = args_of(added, key)
    local last = #args
    args[last + 1], args[last + 2] = first, second
end

-- Run a command with many arguments, in chunks, because Lua limits how many `unpack` can pass.
local function send(command, key, args)
    local answers, count = {}, #args
    if count > 0 and count <= CHUNK then
        return redis.call(command, key, unpack(args))
    end
    for first = 1, count, CHUNK do
        local answer = redis.call(command, key, unpack(args, first, math.min(first + CHUNK - 1, count)))
        for _, value in ipairs(type(answer) == 'table' and answer or {}) do
            answers[#answers + 1] = value
        end
    end
    return answers
end

-- Read many jobs with one command; `read` then finds them in memory.
local function load(seqs)
    for n, packed in ipairs(send('HMGET', JOBS, seqs)) do
        jobs[seqs[n]] = packed and cmsgpack.unpack(packed)
    end
end

local function read(seq)
    if seq and jobs[seq] == nil then
        load({seq})
    end
    return seq and jobs[seq]
end

local function options_of(job)
    return job[OPTIONS] and cjson.decode(job[OPTIONS]) or {}
end

-- Return the job if the lease still holds it. The token is the time of the claim: a claim that a failover lost, and the
-- claim that was made instead, have the same number but never the same token.
local function held(seq, lease, token)
    local job = read(seq)
    if job and job[STATE] == 'processing' and job[LEASE] == lease and job[TOKEN] == tonumber(token) then
        return job
    end
    return nil
end

-- Begin with a no-op write that a full server allows: it then does not refuse the writes that follow.
local function allow_when_full()
    redis.call('HDEL', META, '')
end

-- Events are published together, at the end, and only if the channel has a subscriber; a cluster's servers cannot know.
local has_subscribers = UNSEEN == '1' or redis.call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0

local function publish_event(name, job, count, action, reason)
    if has_subscribers then
        events[#events + 1] = {name, job[ID], job[ATTEMPTS], count, action, reason}
    end
end

local function is_fresh(job)
    return job[FINISHED] and job[FINISHED] + job[RESULT_TTL] > NOW
end

-- Notify the waiters of a job that it has ended or was deleted; jobs without waiters send nothing. The notification
-- contains the outcome unless that is long, because every listener that waits for any job receives it.
local function answer(seq, job, has_ended, outcome)
    if job[AWAITED] then
        local facts = has_ended and is_fresh(job) and #(outcome or '') <= SHORT
            and {job[STATE], job[ATTEMPTS], job[MAX_ATTEMPTS], false}
        local head = cjson.encode({QUEUE, job[ID], seq, facts or false})
        notifications[#notifications + 1] = head .. '\n' .. (facts and outcome or '')
    end
end

-- Write the collected changes, and notify subscribers, waiters, and sleeping workers if a job is due now or before the
-- time that they sleep until.
local function done()
    for seq in pairs(changed) do
        add(JOBS, seq, cmsgpack.pack(jobs[seq]))
    end
    local hashes = {[JOBS] = 1, [PAYLOADS] = 1, [IDS] = 1, [CHECKPOINTS] = 1, [OUTCOMES] = 1}
    for key, args in pairs(removed) do
        send(hashes[key] and 'HDEL' or 'ZREM', key, args)
    end
    for key, args in pairs(added) do
        send(hashes[key] and 'HSET' or 'ZADD', key, args)
    end
    for state, count in pairs(counts) do
        redis.call('HINCRBY', META, state, count)
    end
    for first = 1, #events, 500 do
        local part = {unpack(events, first, math.min(first + 499, #events))}
        redis.call('PUBLISH', EVENTS, cjson.encode({queue = QUEUE, at = text(NOW), events = part}))
    end
    for _, message in ipairs(notifications) do
        redis.call('PUBLISH', ANSWERS, message)
    end
    if placed < math.huge then
        local asleep = redis.call('HGET', META, 'asleep')
        if asleep and (placed <= NOW or placed < tonumber(asleep)) then
            redis.call('HDEL', META, 'asleep')
            redis.call('PUBLISH', WAKE, QUEUE)
        end
    end
end

-- Put a job where claims, or promotion, find it. If it waits there too long, prune.lua finds it by its run_at, or by
-- PRUNABLE if it has a retention of its own.
local function place(seq, job, run_at)
    job[RUN_AT] = run_at
    jobs[seq], changed[seq], placed = job, true, math.min(placed, run_at)
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
local function leave(seq, job)
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

-- End a run, but not the job.
local function requeue(seq, job, state, delay)
    leave(seq, job)
    job[STATE], job[WORKER], job[EXPIRE_AT] = state, false, false
    place(seq, job, NOW + delay)
end

-- End a job. A completed job needs its payload and checkpoint no more.
local function finish(seq, job, state, outcome)
    leave(seq, job)
    job[STATE], job[EXPIRE_AT], job[FINISHED] = state, false, NOW
    changed[seq] = true
    answer(seq, job, true, outcome)
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
    if job[KEEP] > 0 then
        local deleted_at = NOW + job[KEEP]
        add(PRUNABLE, state == 'cancelled' and deleted_at or math.max(deleted_at, expires_at), seq)
    end
end

-- Delete a job, and free its id, unless that belongs to another job by now.
local function drop(seq, job)
    if not job[SUPERSEDED] then
        leave(seq, job)
        remove(IDS, job[ID])
    end
    if LIVE[job[STATE]] then
        answer(seq, job)
    end
    jobs[seq], changed[seq] = false, nil
    for _, key in ipairs({JOBS, PAYLOADS, CHECKPOINTS, OUTCOMES}) do
        remove(key, seq)
    end
    for _, key in ipairs({ORDER, EXPIRING, PRUNABLE}) do
        remove(key, seq)
    end
end

-- Free the id of an ended job for a new one. Until its result expires, waiters of the old job can still read it by its
-- number; no other caller finds it.
local function supersede(seq, job)
    if not job[AWAITED] then
        drop(seq, job)
        return
    end
    leave(seq, job)
    job[SUPERSEDED], changed[seq] = true, true
    for _, key in ipairs({PAYLOADS, CHECKPOINTS, ORDER}) do
        remove(key, seq)
    end
    add(PRUNABLE, NOW + job[RESULT_TTL], seq)
end

-- Delete expired results and errors, a few at a time. No caller can read them any more.
local function sweep(count)
    for _, seq in ipairs(redis.call('ZRANGEBYSCORE', EXPIRING, '-inf', NOW, 'LIMIT', 0, count)) do
        remove(OUTCOMES, seq)
        remove(EXPIRING, seq)
    end
end

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
        seq, job[ID], job[STATE], text(job[CREATED]), job[ATTEMPTS], job[MAX_ATTEMPTS], job[PRIORITY],
        ended and cjson.null or text(job[RUN_AT]), text(job[STARTED]), text(job[FINISHED]), text(locked_until),
        job[WORKER], job[LEASE], job[STALLED], job[SINGLETON], job[STALLED_ON] or {}
    }
end

-- Claimed jobs as rows.py reads them: their rows, then a payload for each, then the checkpoints that exist.
local function claimed(seqs)
    local rows, reply = {}, send('HMGET', PAYLOADS, seqs)
    local checkpoints = redis.call('HLEN', CHECKPOINTS) > 0 and send('HMGET', CHECKPOINTS, seqs) or {}
    for n, seq in ipairs(seqs) do
        local job = jobs[seq]
        rows[n] = {
            seq, job[ID], job[LEASE], text(job[TOKEN]), job[ATTEMPTS], job[MAX_ATTEMPTS], text(job[CREATED]),
            text(job[LEASE_FOR]), text(job[EXPIRE_AT] and job[EXPIRE_AT] - job[STARTED]), job[OPTIONS],
            checkpoints[n] and #reply or false
        }
        if checkpoints[n] then
            reply[#reply + 1] = checkpoints[n]
        end
    end
    table.insert(reply, 1, cjson.encode(rows))
    return reply
end

-- The jobs to reap, up to `limit`, the most overdue first. They include expired attempts of live workers; `patience`
-- applies to expired leases only.
local function overdue()
    local limit, border = request.limit, NOW - request.patience
    local seqs = redis.call('ZRANGEBYSCORE', PROCESSING, '-inf', border, 'LIMIT', 0, limit)
    load(seqs)
    if #seqs < limit and request.patience > 0 then
        local lapsed = redis.call('ZRANGEBYSCORE', PROCESSING, '(' .. text(border), NOW)
        load(lapsed)
        for _, seq in ipairs(lapsed) do
            if #seqs < limit and jobs[seq][EXPIRE_AT] and jobs[seq][EXPIRE_AT] <= NOW then
                seqs[#seqs + 1] = seq
            end
        end
    end
    return seqs
end
