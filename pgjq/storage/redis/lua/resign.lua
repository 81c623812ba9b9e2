-- Resign: give up a leadership, if it is the candidate's own. Without `common/`.
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
