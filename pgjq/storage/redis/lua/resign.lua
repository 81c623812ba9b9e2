-- Resign: leave an office, if it is one's own. Stands alone.
return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0
