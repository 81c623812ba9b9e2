-- Retry: queue failed or cancelled jobs again, with all their attempts. Returns how many, and with `show` the jobs as
-- they are then, without unknown ids. A job keeps its lease number, and the next claim raises it, so that no old lease
-- holds the job. A full server allows it.
allow_when_full()
local count, rows, reply = 0, {}, {}
for _, id in ipairs(request.ids) do
    local seq = redis.call('HGET', IDS, id)
    local job = read_job(seq)
    if job and (job[STATE] == 'failed' or job[STATE] == 'cancelled') then
        leave_state(seq, job)
        remove(OUTCOMES, seq)
        remove(EXPIRING, seq)
        remove(PRUNABLE, seq)
        job[STATE], job[ATTEMPTS], job[STALLED], job[FINISHED] = 'queued', 0, 0, false
        job[CANCEL_REQUESTED], job[STARTED], job[WORKER], job[STALLED_ON] = false, false, false, false
        make_claimable(seq, job, NOW)
        publish_event('queued', job)
        count = count + 1
    end
    if job and request.show then
        rows[#rows + 1] = {seq, job}
    end
end
write_changes()
for n, row in ipairs(rows) do
    rows[n], reply[n] = row_of(unpack(row)), outcome_of(unpack(row))
end
return {count, cjson.encode(rows), unpack(reply)}
