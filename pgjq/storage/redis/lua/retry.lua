-- Retry: put a failed or cancelled job back in its place, with all its attempts. Answers the job as it is then; nil if
-- there is none. Its lease number goes on from where it was, so that no old lease holds it. A full server allows it.
local seq = redis.call('HGET', IDS, request.id)
local job = read(seq)
if not job then
    return false
end
if job[STATE] == 'failed' or job[STATE] == 'cancelled' then
    insist()
    leave(seq, job)
    remove(OUTCOMES, seq)
    remove(EXPIRING, seq)
    remove(PRUNABLE, seq)
    job[STATE], job[ATTEMPTS], job[STALLED], job[FINISHED] = 'queued', 0, 0, false
    job[CANCEL], job[STARTED], job[WORKER], job[STALLED_ON] = false, false, false, false
    place(seq, job, NOW)
    tell('queued', job)
    done()
end
return {cjson.encode({row_of(seq, job)}), outcome_of(seq, job)}
