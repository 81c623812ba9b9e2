-- Prune: delete up to `limit` jobs that ended or waited longer ago than their retention; never a running job, nor one
-- whose result can be read. Returns how many, and how many jobs are left. A full server allows it.
allow_when_full()
sweep(request.limit)
local count = 0

local function forget(old, is_old)
    load(old)
    for _, seq in ipairs(old) do
        if is_old(jobs[seq]) then
            drop(seq, jobs[seq])
            count = count + 1
        end
    end
end

forget(redis.call('ZRANGEBYSCORE', PRUNABLE, '-inf', NOW, 'LIMIT', 0, request.limit), function() return true end)
local border = NOW - request.retention
for _, key in ipairs({QUEUED, FAILING}) do
    local old = redis.call('ZRANGEBYSCORE', key, '-inf', border, 'LIMIT', 0, request.limit - count)
    forget(old, function(job) return job and not job[RETENTION] and job[CREATED] <= border end)
end
done()
return {count, redis.call('HLEN', JOBS)}
