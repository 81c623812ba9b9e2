-- Delete: delete jobs that are not running, and free their ids. Returns how many. A full server allows it.
allow_when_full()
local count = 0
for _, id in ipairs(request) do
    local seq = redis.call('HGET', IDS, id)
    local job = read_job(seq)
    if job and job[STATE] ~= 'processing' then
        delete_job(seq, job)
        count = count + 1
    end
end
write_changes()
return count
