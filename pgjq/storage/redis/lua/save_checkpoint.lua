-- Save a checkpoint for the next run, if the lease still holds. Answers whether it did. A full server allows it.
if not held(unpack(request)) then
    return 0
end
insist()
redis.call('HSET', CHECKPOINTS, request[1], ARGV[BLOBS + 1])
return 1
