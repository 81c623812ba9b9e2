-- Answer: how a job stands, by its number, so that an id that is another job by now does not matter; nil if it is gone.
--
-- Guarantees that whoever ends a job which lives tells those who wait: a mark that a failover forgot is set again. A full
-- server allows it.
local seq = request.seq
local job = read(seq)
if not job then
    return false
end
local lives = LIVE[job[STATE]]
if lives and not job[AWAITED] then
    insist()
    job[AWAITED], changed[seq] = true, true
    done()
end
local facts = {job[STATE], job[ATTEMPTS], job[MAX_ATTEMPTS], not lives and not is_fresh(job)}
return {cjson.encode(facts), outcome_of(seq, job)}
