-- Give the lock a new ttl if it is still ours, in one step.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  ttl, milliseconds
-- returns  1 renewed, 0 it was not ours
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
