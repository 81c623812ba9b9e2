-- Enqueue: add jobs whose ids are free, in their order, all of them or none; answer for those that were not added.
--
-- Guarantees
--   * An id is taken while its job lives, and then until its result expires; of any number of callers one adds it.
--   * A number orders the jobs of a queue. It is the server's time in microseconds, or one more than the last, so that
--     no failover, whatever it forgets, gives a number to a second job.
--   * The first write is one that a full server refuses.
-- Answers nil for a queue that is not on the list of queues yet: nobody would look after its jobs.
if not redis.call('HGET', META, 'listed') then
    return false
end
local ids, settings, which, made = request.ids, request.settings, some(request.which), request.made
local first = math.max((tonumber(redis.call('HGET', META, 'seq')) or 0) + 1, REAL)
redis.call('HSET', META, 'seq', string.format('%.0f', first + #ids - 1))

local PRIORITY_, MAX_, TTL_, RUN_AT_, DELAY_, KEY_, DUPLICATE_, OPTIONS_, RETENTION_, KEEP_ = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local refused, results, mine = {}, {}, {}
local owners = made and {} or send('HMGET', IDS, ids)

local function refuse(position, status, state, result)
    refused[#refused + 1] = {position - 1, status, state}
    results[#results + 1] = result or false
end

local function is_taken(position, id, own)
    if mine[id] then
        refuse(position, 'duplicate', 'queued')
        return true
    end
    local seq = owners[position]
    local job = read(seq)
    if not job then
        return false
    end
    local state = job[STATE]
    if LIVE[state] or (state == 'failed' and own[DUPLICATE_] and is_fresh(job)) then
        refuse(position, 'duplicate', state)
        return true
    end
    if state == 'completed' and is_fresh(job) then
        refuse(position, 'completed', state, redis.call('HGET', OUTCOMES, seq))
        return true
    end
    drop(seq, job)
    return false
end

for position, id in ipairs(ids) do
    local own = settings[which and which[position] or 1]
    if not is_taken(position, id, own) then
        local seq = string.format('%016.0f', first + position - 1)
        local job = {
            id, 'queued', own[PRIORITY_], own[MAX_], own[TTL_], some(own[KEY_]), some(own[OPTIONS_]),
            some(own[RETENTION_]), own[KEEP_], NOW, 0, 0, 0, 0, 0, false, false, false, false, false, false, false, false
        }
        mine[id] = true
        add(IDS, id, seq)
        add(PAYLOADS, seq, ARGV[BLOBS + position])
        add(ORDER, 0, seq)
        place(seq, job, some(own[RUN_AT_]) or NOW + own[DELAY_])
        tell('queued', job)
    end
end
sweep(#ids + 10)
done()
table.insert(results, 1, cjson.encode(refused))
return results
