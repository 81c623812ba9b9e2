-- Cancel: withdraw a job that is not running; with `active`, ask a running one to end. Answers what was found.
--
-- A claim is before this script or after it, so that a job is either cancelled or claimed. A full server allows it.
local seq = redis.call('HGET', IDS, request.id)
local job = read(seq)
if not job then
    return 'not_found'
end
local found = job[STATE]
if found == 'queued' or found == 'failing' then
    insist()
    finish(seq, job, 'cancelled')
    tell('cancelled', job)
    done()
    return 'cancelled'
end
if found == 'processing' and request.active and not job[CANCEL] then
    insist()
    job[CANCEL] = true
    changed[seq] = true
    done()
end
return found
