-- Count running: count each worker's in-flight runs of this queue, for display.
local counts, names = {}, {}
local seqs = redis.call('ZRANGE', PROCESSING, 0, -1)
load_jobs(seqs)
for _, seq in ipairs(seqs) do
    local worker = jobs[seq][WORKER]
    counts[worker] = (counts[worker] or 0) + 1
end
for worker, count in pairs(counts) do
    names[#names + 1] = {worker, count}
end
return cjson.encode(names)
