-- Job state: read a job's state by its number (its id may belong to another job by now), or the state of the job that
-- has an id now, and its number; nil if the job is gone.
--
-- Guarantees that the script that ends a live job notifies the waiters: a mark that a failover lost is set again.
-- A full server allows it.
local seq = or_false(request.seq) or redis.call('HGET', IDS, request.id)
local job = read_job(seq)
if not job then
    return false
end
local is_live = LIVE[job[STATE]]
if is_live and not job[AWAITED] then
    allow_when_full()
    job[AWAITED], changed[seq] = true, true
    write_changes()
end
local summary = {job[STATE], job[ATTEMPTS], job[MAX_ATTEMPTS], not is_live and not is_fresh(job)}
return {cjson.encode(summary), outcome_of(seq, job), seq}
