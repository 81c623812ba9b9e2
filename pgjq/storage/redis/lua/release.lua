-- Release: take running jobs away from their workers, without counting their attempts. Returns how many.
--
-- Their runs are recorded as lease_lost, and a late outcome finds that the job no longer runs. A requested cancellation
-- wins. A full server allows it.
allow_when_full()
local count = 0
for _, id in ipairs(request) do
    local seq = redis.call('HGET', IDS, id)
    local job = read_job(seq)
    if job and job[STATE] == 'processing' then
        record_attempt(seq, job, job[CANCEL_REQUESTED] and 'cancelled' or 'lease_lost')
        if job[CANCEL_REQUESTED] then
            end_job(seq, job, 'cancelled')
        else
            job[ATTEMPTS] = job[ATTEMPTS] - 1
            requeue(seq, job, job[ATTEMPTS] > 0 and 'failing' or 'queued', 0)
        end
        publish_event(job[STATE], job)
        count = count + 1
    end
end
write_changes()
return count
