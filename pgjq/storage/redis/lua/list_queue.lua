-- List queue: record in the queue itself that the caller has just put it on the list of queues.
redis.call('HSET', META, 'listed', 1)
return 1
