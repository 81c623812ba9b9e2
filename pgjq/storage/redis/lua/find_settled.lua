-- Find settled: read how runs ended, after a settle whose reply was lost. Returns for each run its recorded outcome (false:
-- it completed), the state that it left its job in, and whether the run has the given error; false if the run goes on, or
-- is not known because the job was claimed again or is gone.
local answers, seqs = {}, {}
for n, run in ipairs(request) do
    seqs[n] = run[1]
end
load_jobs(seqs)
for n, run in ipairs(request) do
    local seq, lease, token, error = unpack(run)
    local job = read_job(seq)
    answers[n] = false
    if job and job[LEASE] == lease and job[TOKEN] == tonumber(token) and job[STATE] ~= 'processing' then
        local attempt = redis.call('HGET', ATTEMPTS_MADE, attempt_name(seq, lease))
        local _, _, _, _, outcome, recorded = unpack(attempt and cjson.decode(attempt) or {})
        answers[n] = {outcome or false, job[STATE], (or_false(recorded) or false) == (or_false(error) or false)}
    end
end
return cjson.encode(answers)
