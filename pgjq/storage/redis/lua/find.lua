-- Find: list jobs after a number, in enqueue order, by state, key, task and age.
--
-- Reads at most `max_reads` jobs, because other clients wait while a script runs; returns first the number to continue
-- from, or nil at the end. Running jobs, of which there are few, are found through their deadlines.
local function candidates()
    if request.state ~= 'processing' then
        return redis.call('ZRANGEBYLEX', ORDER, '(' .. request.after, '+', 'LIMIT', 0, request.max_reads)
    end
    local running = {}
    for _, seq in ipairs(redis.call('ZRANGE', PROCESSING, 0, -1)) do
        if seq > request.after then
            running[#running + 1] = seq
        end
    end
    table.sort(running)
    return {unpack(running, 1, math.min(#running, request.max_reads))}
end

local state, key, task = or_false(request.state), or_false(request.singleton_key), or_false(request.task)
local before, after = or_false(request.created_before), or_false(request.created_after)

local function is_wanted(job)
    return (not state or job[STATE] == state)
        and (not key or job[SINGLETON_KEY] == key)
        and (not task or job[TASK] == task)
        and (not before or job[CREATED] < before)
        and (not after or job[CREATED] >= after)
end

local rows, reply = {}, {}
local seen = candidates()
local last = #seen == request.max_reads and seen[#seen]
load_jobs(seen)
for _, seq in ipairs(seen) do
    local job = jobs[seq]
    if is_wanted(job) then
        rows[#rows + 1] = row_of(seq, job)
        reply[#reply + 1] = outcome_of(seq, job)
        if #rows == request.limit then
            last = seq
            break
        end
    end
end
table.insert(reply, 1, cjson.encode(rows))
table.insert(reply, 1, last)
return reply
