-- Enqueue: add the jobs whose ids are free, in order, all of them or none; report the jobs that were not added.
--
-- Guarantees
--   * An id is taken while its job is live, and then until its result expires; of concurrent callers only one adds it.
--   * A number orders the jobs of a queue. It is the server's time in microseconds, or one more than the last number,
--     so that a number is never used twice, whatever a failover loses.
--   * `awaited` marks the job, new or found: the script that ends it notifies the waiters. Scripts do not interleave,
--     so no end is missed.
--   * The first write is one that a full server refuses.
-- Returns the first job's number, if it was added, and for each job that was not added the job that has its id.
-- Returns nil for a queue that is not on the list of queues yet: no reaper would look after its jobs.
local listed, last = unpack(redis.call('HMGET', META, 'listed', 'seq'))
if not listed then
    return false
end
local ids, settings, which = request.ids, request.settings, or_false(request.which)
local generated_ids, awaited = request.generated_ids, request.awaited
local tasks, headers = or_false(request.tasks), or_false(request.headers)
local first = math.max((tonumber(last) or 0) + 1, SERVER_TIME)
redis.call('HSET', META, 'seq', string.format('%.0f', first + #ids - 1))

-- The settings of a job, in the order of enqueue.py.
local PRIORITY_, MAX_ATTEMPTS_, RESULT_TTL_, RUN_AT_, DELAY_, SINGLETON_KEY_, DUPLICATE_IF_FAILED_, OPTIONS_,
    RETENTION_, DELETE_AFTER_ = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local refused, results, mine = {}, {}, {}
local owners = generated_ids and {} or call_in_chunks('HMGET', IDS, ids)

local function number(position)
    return string.format('%016.0f', first + position - 1)
end

local function refuse(position, status, seq, result)
    local job = jobs[seq]
    refused[#refused + 1] = {position - 1, status, job[STATE], seq}
    results[#results + 1] = result or false
    if awaited and not job[AWAITED] then
        job[AWAITED], changed[seq] = true, true
    end
end

local function is_taken(position, id, own)
    if mine[id] then
        refuse(position, 'duplicate', mine[id])
        return true
    end
    local seq = owners[position]
    local job = read_job(seq)
    if not job then
        return false
    end
    local state = job[STATE]
    if LIVE[state] or (state == 'failed' and own[DUPLICATE_IF_FAILED_] and is_fresh(job)) then
        refuse(position, 'duplicate', seq)
        return true
    end
    if state == 'completed' and is_fresh(job) then
        refuse(position, 'completed', seq, redis.call('HGET', OUTCOMES, seq))
        return true
    end
    supersede(seq, job)
    return false
end

for position, id in ipairs(ids) do
    local own = settings[which and which[position] or 1]
    if not is_taken(position, id, own) then
        local seq = number(position)
        local job = {
            id, 'queued', own[PRIORITY_], own[MAX_ATTEMPTS_], own[RESULT_TTL_], or_false(own[SINGLETON_KEY_]),
            or_false(own[OPTIONS_]), or_false(own[RETENTION_]), own[DELETE_AFTER_], NOW, 0, 0, 0, 0, 0, false, false, false,
            false, false, false, false, false, awaited, false, false
        }
        if tasks or headers then  -- Other records stay short.
            job[CLAIM_ID] = false
            job[TASK], job[HEADERS] = or_false(tasks and tasks[position]), or_false(headers and headers[position])
        end
        mine[id] = seq
        add(IDS, id, seq)
        add(PAYLOADS, seq, ARGV[BLOBS + position])
        add(ORDER, 0, seq)
        make_claimable(seq, job, or_false(own[RUN_AT_]) or NOW + own[DELAY_])
        publish_event('queued', job)
    end
end
delete_expired_outcomes(#ids + 10)
write_changes()
table.insert(results, 1, cjson.encode({number(1), refused}))
return results
