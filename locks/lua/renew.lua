-- Prolong a lease that is still ours.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  ttl, milliseconds
-- returns  1 prolonged, 0 somebody else has it, -1 nobody has it
local holder = redis.call('get', KEYS[1])
if holder == ARGV[1] then
    return redis.call('pexpire', KEYS[1], ARGV[2])
end
return holder and 0 or -1
