-- Attempts: read the ended runs of a job by its id, oldest first: the recorded ones, and the completing one, which is the
-- job's own record. Twenty at most.
local seq = redis.call('HGET', IDS, request)
local job = read_job(seq)
if not job then
    return {}
end
local ended = job[STATE] == 'processing' and job[LEASE] - 1 or job[LEASE]
local reply = call_in_chunks('HMGET', ATTEMPTS_MADE, attempt_names(seq, ended))
if job[STATE] == 'completed' then
    local run = {job[LEASE], job[WORKER], as_text(job[STARTED]), as_text(job[FINISHED]), 'completed', cjson.null}
    reply[#reply] = cjson.encode(run)
end
return reply
