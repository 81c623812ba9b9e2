-- Save checkpoint: store a checkpoint for the next run, if the lease still holds. Returns whether it did. A full server
-- allows it.
if not leased_job(unpack(request)) then
    return 0
end
allow_when_full()
redis.call('HSET', CHECKPOINTS, request[1], ARGV[BLOBS + 1])
return 1
