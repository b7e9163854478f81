-- Delete the lock if it is still ours, in one step (A0, A1 3.2, A4).
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- returns  1 deleted, 0 it was not ours
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
