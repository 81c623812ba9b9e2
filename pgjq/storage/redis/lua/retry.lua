-- Retry: put failed or cancelled jobs back in their places, with all their attempts. Answers how many, and with `show`
-- the jobs as they are then; ids that are unknown are not among them. A job's lease number goes on from where it was, so
-- that no old lease holds it. A full server allows it.
insist()
local count, rows, reply = 0, {}, {}
for _, id in ipairs(request.ids) do
    local seq = redis.call('HGET', IDS, id)
    local job = read(seq)
    if job and (job[STATE] == 'failed' or job[STATE] == 'cancelled') then
        leave(seq, job)
        remove(OUTCOMES, seq)
        remove(EXPIRING, seq)
        remove(PRUNABLE, seq)
        job[STATE], job[ATTEMPTS], job[STALLED], job[FINISHED] = 'queued', 0, 0, false
        job[CANCEL], job[STARTED], job[WORKER], job[STALLED_ON] = false, false, false, false
        place(seq, job, NOW)
        tell('queued', job)
        count = count + 1
    end
    if job and request.show then
        rows[#rows + 1] = {seq, job}
    end
end
done()
for n, row in ipairs(rows) do
    rows[n], reply[n] = row_of(unpack(row)), outcome_of(unpack(row))
end
return {count, cjson.encode(rows), unpack(reply)}
