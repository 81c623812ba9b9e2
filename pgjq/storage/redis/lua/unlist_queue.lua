-- Unlist queue: remove the queue's record that it is on the list of queues, from which the caller has just taken it,
-- and its counts. Returns 0, and changes nothing, if it has jobs by now: then it belongs on the list. `asleep` stays.
if redis.call('HLEN', JOBS) > 0 then
    return 0
end
redis.call('HDEL', META, 'listed', 'seq', 'completed', 'failed', 'cancelled')
return 1
