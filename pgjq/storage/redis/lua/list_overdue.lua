-- List overdue: list the deadlines and numbers of the jobs that reap.lua would reap now, the most overdue first.
local deadlines = {}
for n, seq in ipairs(overdue_jobs()) do
    deadlines[n] = {redis.call('ZSCORE', PROCESSING, seq), seq}
end
return deadlines
