-- Take the lock if it is free. Asking again with the same token is the same acquisition, so a
-- reply that got lost may be asked for again.
-- KEYS[1]  the lock, value: token of its holder
-- KEYS[2]  the last fence given out
-- ARGV[1]  token
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  how long the last fence is remembered, milliseconds
-- returns  {1, fence} the lock is ours; {0, milliseconds until the holder's lease ends}
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
    return {0, redis.call('pttl', KEYS[1])}
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
if holder then
    return {1, redis.call('get', KEYS[2])}
end
-- The server's clock keeps fences rising when the last one was lost (restart, FLUSHALL, failover).
local now = redis.call('time')
local fence = now[1] * 1000000 + now[2]
local last = tonumber(redis.call('get', KEYS[2]) or 0)
if fence <= last then
    fence = last + 1
end
local digits = string.format('%.0f', fence) -- tostring would give 1.7e+15
redis.call('set', KEYS[2], digits, 'PX', ARGV[3])
return {1, digits}
