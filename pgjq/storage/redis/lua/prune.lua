-- Prune: delete up to `limit` jobs that ended or waited longer ago than their retention; never a running job, nor one
-- whose result can be read. Returns how many, and how many jobs are left. A full server allows it.
allow_when_full()
delete_expired_outcomes(request.limit)
local count = 0

local function delete_old(old, is_old)
    load_jobs(old)
    for _, seq in ipairs(old) do
        if is_old(jobs[seq]) then
            delete_job(seq, jobs[seq])
            count = count + 1
        end
    end
end

delete_old(redis.call('ZRANGEBYSCORE', PRUNABLE, '-inf', NOW, 'LIMIT', 0, request.limit), function() return true end)
local latest = NOW - request.retention
for _, key in ipairs({QUEUED, FAILING}) do
    local old = redis.call('ZRANGEBYSCORE', key, '-inf', latest, 'LIMIT', 0, request.limit - count)
    delete_old(old, function(job) return job and not job[RETENTION] and job[CREATED] <= latest end)
end
write_changes()
return {count, redis.call('HLEN', JOBS)}
