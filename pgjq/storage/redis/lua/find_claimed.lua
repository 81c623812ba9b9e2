-- Find claimed: list the jobs that a claim took and still holds, for a worker that did not get the claim's reply.
local mine, seqs = {}, redis.call('ZRANGE', PROCESSING, 0, -1)
load_jobs(seqs)
for _, seq in ipairs(seqs) do
    if jobs[seq][CLAIM_ID] == request then
        mine[#mine + 1] = seq
    end
end
return claimed_reply(mine)
