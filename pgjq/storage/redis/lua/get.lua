-- Get: jobs by their ids; what is unknown is not in the answer, and neither is a result whose time has passed.
local rows, reply = {}, {}
for _, seq in ipairs(send('HMGET', IDS, request)) do
    local job = read(seq)
    if job then
        rows[#rows + 1] = row_of(seq, job)
        reply[#reply + 1] = outcome_of(seq, job)
    end
end
table.insert(reply, 1, cjson.encode(rows))
return reply
