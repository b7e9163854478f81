-- Prolong a lease that is still ours. Always writes, so that a replica refuses.
-- KEYS     see hand_over.lua; or the lock alone, where a slot of a cluster moves key by key
-- ARGV[1]  our token
-- ARGV[2]  milliseconds
-- ARGV[3]  what they are: 'least' the lease lasts so long from now on, or longer if it does anyway;
--          'add' so much longer than it does; 'set' exactly so long
-- ARGV[4]  the token that has the lock from now on
-- ARGV[5]  how long the last fence is remembered after the lease, milliseconds
-- returns  1 prolonged, 0 somebody else has it, -1 nobody has it
local holder = redis.call('get', KEYS[1])
if holder ~= ARGV[1] then
    return holder and 0 or -1
end
local ttl, left = tonumber(ARGV[2]), redis.call('pttl', KEYS[1])
if ARGV[3] == 'add' then
    ttl = ttl + math.max(left, 0)
elseif ARGV[3] == 'least' then
    ttl = math.max(ttl, left)
end
if ARGV[4] ~= ARGV[1] then
    redis.call('set', KEYS[1], ARGV[4])
end
if KEYS[4] then
    redis.call('pexpire', KEYS[4], ttl + ARGV[5])
    if ARGV[3] == 'set' then -- not renewed any more by the process that it was given to
        redis.call('hdel', KEYS[3], '*')
    end
end
return redis.call('pexpire', KEYS[1], ttl)
