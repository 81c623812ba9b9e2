-- Changes of a script, collected in memory: the jobs read, the events and notifications, and `write_changes`.
-- Collected changes: for each key the arguments of a command that removes from it, and of one that then adds to it;
-- the jobs read so far, and which of them changed; the difference in the number of jobs per state.
local removed, added, jobs, changed, counts = {}, {}, {}, {}, {}
local events, notifications, earliest_run_at = {}, {}, math.huge

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
local function call_in_chunks(command, key, args)
    local replies, count = {}, #args
    if count > 0 and count <= CHUNK then
        return redis.call(command, key, unpack(args))
    end
    for first = 1, count, CHUNK do
        local reply = redis.call(command, key, unpack(args, first, math.min(first + CHUNK - 1, count)))
        for _, value in ipairs(type(reply) == 'table' and reply or {}) do
            replies[#replies + 1] = value
        end
    end
    return replies
end

-- Read many jobs with one command; `read_job` then finds them in memory.
local function load_jobs(seqs)
    for n, packed in ipairs(call_in_chunks('HMGET', JOBS, seqs)) do
        jobs[seqs[n]] = packed and cmsgpack.unpack(packed)
    end
end

local function read_job(seq)
    if seq and jobs[seq] == nil then
        load_jobs({seq})
    end
    return seq and jobs[seq]
end

local function options_of(job)
    return job[OPTIONS] and cjson.decode(job[OPTIONS]) or {}
end

-- Return the job if the lease still holds it. The token is the time of the claim: a claim that a failover lost, and the
-- claim that was made instead, have the same number but never the same token.
local function leased_job(seq, lease, token)
    local job = read_job(seq)
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
local has_subscribers = ALWAYS_PUBLISH == '1' or redis.call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0

local function publish_event(name, job, count, action, reason)
    if has_subscribers and not job[TASK] then
        events[#events + 1] = {name, job[ID], job[ATTEMPTS], count, action, reason}
    elseif has_subscribers then
        local none = cjson.null
        events[#events + 1] = {name, job[ID], job[ATTEMPTS], count or none, action or none, reason or none, job[TASK]}
    end
end

local function is_fresh(job)
    return job[FINISHED] and job[FINISHED] + job[RESULT_TTL] > NOW
end

-- Notify the waiters of a job that it has ended or was deleted; jobs without waiters send nothing. The notification
-- contains the outcome unless that is long, because every listener that waits for any job receives it.
local function notify_waiters(seq, job, has_ended, outcome)
    if job[AWAITED] then
        local summary = has_ended and is_fresh(job) and #(outcome or '') <= MAX_NOTIFIED_OUTCOME
            and {job[STATE], job[ATTEMPTS], job[MAX_ATTEMPTS], false}
        local head = cjson.encode({QUEUE, job[ID], seq, summary or false})
        notifications[#notifications + 1] = head .. '\n' .. (summary and outcome or '')
    end
end

-- Write the collected changes, and notify subscribers, waiters, and sleeping workers if a job is due now or before the
-- time that they sleep until.
local function write_changes()
    for seq in pairs(changed) do
        add(JOBS, seq, cmsgpack.pack(jobs[seq]))
    end
    local hashes = {[JOBS] = 1, [PAYLOADS] = 1, [IDS] = 1, [CHECKPOINTS] = 1, [OUTCOMES] = 1, [ATTEMPTS_MADE] = 1}
    for key, args in pairs(removed) do
        call_in_chunks(hashes[key] and 'HDEL' or 'ZREM', key, args)
    end
    for key, args in pairs(added) do
        call_in_chunks(hashes[key] and 'HSET' or 'ZADD', key, args)
    end
    for state, count in pairs(counts) do
        redis.call('HINCRBY', META, state, count)
    end
    for first = 1, #events, 500 do
        local part = {unpack(events, first, math.min(first + 499, #events))}
        redis.call('PUBLISH', EVENTS, cjson.encode({queue = QUEUE, at = as_text(NOW), events = part}))
    end
    for _, message in ipairs(notifications) do
        redis.call('PUBLISH', RESULTS, message)
    end
    if earliest_run_at < math.huge then
        local asleep = redis.call('HGET', META, 'asleep')
        if asleep and (earliest_run_at <= NOW or earliest_run_at < tonumber(asleep)) then
            redis.call('HDEL', META, 'asleep')
            redis.call('PUBLISH', WAKE, QUEUE)
        end
    end
end
