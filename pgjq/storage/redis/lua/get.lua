-- Get: read jobs by their ids. Unknown ids are left out of the reply, and so are expired results.
local rows, reply = {}, {}
for _, seq in ipairs(call_in_chunks('HMGET', IDS, request)) do
    local job = read_job(seq)
    if job then
        rows[#rows + 1] = row_of(seq, job)
        reply[#reply + 1] = outcome_of(seq, job)
    end
end
table.insert(reply, 1, cjson.encode(rows))
return reply
