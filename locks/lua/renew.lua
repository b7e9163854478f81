-- Change the end of the lease if our token still holds the lock. Then the script always writes,
-- even if the end stays the same, so that a replica refuses it.
-- KEYS     see hand_over.lua; or only the lock, because that works while a cluster moves its slot
-- ARGV[1]  our token
-- ARGV[2]  milliseconds
-- ARGV[3]  their meaning: 'least': the lease lasts at least this long from now on; 'add': it lasts
--          this much longer; 'set': it lasts exactly this long from now on
-- ARGV[4]  the token that holds the lock from now on
-- ARGV[5]  milliseconds for which the last fence is remembered after the lease
-- returns  1 if our token held the lock; 0 if another token holds it; -1 if the lock was free
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
    if ARGV[3] == 'set' then
        -- The process to which hand_over.lua handed the lock no longer has to renew it. So if the
        -- lease ends, the waiters of that process keep their places.
        redis.call('hdel', KEYS[3], '*')
    end
end
return redis.call('pexpire', KEYS[1], ttl)
