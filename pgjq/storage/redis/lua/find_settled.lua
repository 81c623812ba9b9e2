-- Find settled: read how runs ended, after a settle whose reply was lost. Returns for each run the state that it left
-- its job in and whether the job has the given error; false if the run goes on, or its job is claimed again or gone.
local answers, seqs = {}, {}
for n, run in ipairs(request) do
    seqs[n] = run[1]
end
load_jobs(seqs)
for n, run in ipairs(request) do
    local seq, lease, token, error = unpack(run)
    local job = read_job(seq)
    local over = job and job[LEASE] == lease and job[TOKEN] == tonumber(token) and job[STATE] ~= 'processing'
    answers[n] = over and {job[STATE], or_false(error) and redis.call('HGET', OUTCOMES, seq) == 'e' .. error or false}
end
return cjson.encode(answers)
