-- Prune: forget up to `limit` jobs whose time has passed, ended ones and those that waited longer than their retention;
-- never one that runs, nor one whose result can be read. Answers how many. A full server allows it.
insist()
sweep(request.limit)
local old = redis.call('ZRANGEBYSCORE', PRUNABLE, '-inf', NOW, 'LIMIT', 0, request.limit)
for _, seq in ipairs(old) do
    drop(seq, read(seq))
end
return #old
