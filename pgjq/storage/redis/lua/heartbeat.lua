-- Heartbeat: move the deadline of every lease that is still held forward; never past the attempt's expiry.
--
-- Guarantees
--   * Returns for each lease: 0 it is lost, 1 it was renewed, 2 it was renewed and its job is to be cancelled.
--   * A full server does not refuse it: a live worker does not lose its jobs.
allow_when_full()
local answers, seqs = {}, {}
for n, lease in ipairs(request) do
    seqs[n] = lease[1]
end
load_jobs(seqs)
for n, lease in ipairs(request) do
    local job = leased_job(unpack(lease))
    if job and job[LEASE_DURATION] then
        local until_ = NOW + job[LEASE_DURATION]
        add(PROCESSING, job[EXPIRE_AT] and math.min(until_, job[EXPIRE_AT]) or until_, lease[1])
    end
    answers[n] = not job and 0 or job[CANCEL_REQUESTED] and 2 or 1
end
write_changes()
return cjson.encode(answers)
