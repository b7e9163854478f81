-- Delete the lock if it still has our token, in one step (articles A0, A1 3.2, A4).
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- returns  1 if the lock was deleted; 0 if it has another token or does not exist
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
