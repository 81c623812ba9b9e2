-- Settle: end runs, each only if its lease still holds the job. Returns each job's new state, false for a lost lease.
--
-- Guarantees
--   * A requested cancellation wins: the run ends as cancelled, whatever its outcome.
--   * Each run that does not complete is recorded with its outcome and error.
--   * A run that does not count (released, snoozed) leaves the job in the state it was claimed from.
--   * Each run of the batch is settled by itself; a full server refuses none.
allow_when_full()
local states, seqs = {}, {}
for n, run in ipairs(request) do
    seqs[n] = run[1]
end
load_jobs(seqs)
for n, run in ipairs(request) do
    local seq, lease, token, ends, delay, outcome, error = unpack(run)
    local job = leased_job(seq, lease, token)
    if job then
        if job[CANCEL_REQUESTED] then
            ends, outcome, error = 'cancelled', 'cancelled', nil
        end
        if ends ~= 'completed' then
            record_attempt(seq, job, outcome, error)
        end
        if ends == 'completed' then
            local result = ARGV[BLOBS + n]
            end_job(seq, job, ends, result ~= '' and result)
        elseif ends == 'failed' then
            end_job(seq, job, ends, 'e' .. error)
        elseif ends == 'cancelled' then
            end_job(seq, job, ends)
        elseif ends == 'failing' then
            add(OUTCOMES, seq, 'e' .. error)
            requeue(seq, job, ends, delay)
        else
            job[ATTEMPTS] = job[ATTEMPTS] - 1
            requeue(seq, job, job[ATTEMPTS] > 0 and 'failing' or 'queued', delay)
        end
        publish_event(job[STATE], job)
    end
    states[n] = job and job[STATE] or false
end
delete_expired_outcomes(2 * #request)
write_changes()
return cjson.encode(states)
