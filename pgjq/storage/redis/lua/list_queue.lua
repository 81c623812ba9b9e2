-- List a queue: note that it is on the list of queues, where it has been put a moment ago.
redis.call('HSET', META, 'listed', 1)
return 1
