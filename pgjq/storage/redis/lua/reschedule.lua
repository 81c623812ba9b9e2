-- Reschedule: change when a waiting job may run, and its priority. Returns the job as it is then, without an unknown id;
-- a job in another state is left alone. A full server allows it.
allow_when_full()
local seq = redis.call('HGET', IDS, request.id)
local job = read_job(seq)
if job and (job[STATE] == 'queued' or job[STATE] == 'failing') then
    leave_state(seq, job)
    job[PRIORITY] = or_false(request.priority) or job[PRIORITY]
    make_claimable(seq, job, or_false(request.run_at) or job[RUN_AT])
end
write_changes()
if not job then
    return {'[]'}
end
return {cjson.encode({row_of(seq, job)}), outcome_of(seq, job)}
