-- Unlist a queue: forget that it is on the list of queues, from which it has been taken a moment ago, and its figures.
-- Answers 0, and does nothing, if it has jobs by now: then it belongs on the list. Who sleeps there is remembered.
if redis.call('HLEN', JOBS) > 0 then
    return 0
end
redis.call('HDEL', META, 'listed', 'seq', 'completed', 'failed', 'cancelled')
return 1
