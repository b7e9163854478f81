-- Set a new ttl for the lock if it still has our token, in one step.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  ttl in milliseconds
-- returns  1 if the lock was renewed; 0 if it has another token or does not exist
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0
