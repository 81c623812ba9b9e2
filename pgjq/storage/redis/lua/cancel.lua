-- Cancel: withdraw jobs that are not running; with `active`, ask running ones to end. Answers how many were withdrawn,
-- then for each id what was found.
--
-- A claim is before this script or after it, so that a job is either cancelled or claimed. A full server allows it.
insist()
local reply = {0}
for n, id in ipairs(request.ids) do
    local seq = redis.call('HGET', IDS, id)
    local job = read(seq)
    local found = job and job[STATE] or 'not_found'
    if found == 'queued' or found == 'failing' then
        finish(seq, job, 'cancelled')
        tell('cancelled', job)
        reply[1], found = reply[1] + 1, 'cancelled'
    elseif found == 'processing' and request.active and not job[CANCEL] then
        job[CANCEL], changed[seq] = true, true
    end
    reply[n + 1] = found
end
done()
return reply
