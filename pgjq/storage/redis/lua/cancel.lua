-- Cancel: cancel jobs that are not running; with `active`, request cancellation of running ones. Returns how many were
-- cancelled, then the state found for each id.
--
-- A claim runs before this script or after it, so a job is either cancelled or claimed. A full server allows it.
allow_when_full()
local reply = {0}
for n, id in ipairs(request.ids) do
    local seq = redis.call('HGET', IDS, id)
    local job = read_job(seq)
    local found = job and job[STATE] or 'not_found'
    if found == 'queued' or found == 'failing' then
        end_job(seq, job, 'cancelled')
        publish_event('cancelled', job)
        reply[1], found = reply[1] + 1, 'cancelled'
    elseif found == 'processing' and request.active and not job[CANCEL_REQUESTED] then
        job[CANCEL_REQUESTED], changed[seq] = true, true
    end
    reply[n + 1] = found
end
write_changes()
return reply
