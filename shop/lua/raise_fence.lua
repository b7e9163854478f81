-- Raise the last fence of a lock, if the next one would not be above the storage's. Never lower it.
-- KEYS[1]  the last fence given out
-- ARGV[1]  the storage's fence
-- ARGV[2]  the last fence from now on, if it is raised; higher than the storage's
-- ARGV[3]  how long that is remembered, milliseconds
-- returns  1 raised, 0 the next one would have been above the storage's anyway
local clock = redis.call('time')
local now = clock[1] * 1000000 + clock[2]
local last = tonumber(redis.call('get', KEYS[1]) or 0)
if math.max(now, last + 1) > tonumber(ARGV[1]) then
    return 0
end
redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
