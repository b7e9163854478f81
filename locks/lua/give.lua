-- Read the server's clock, and define give(), which gives the lock to a token. acquire.lua and
-- release.lua include this file.
-- KEYS  see hand_over.lua
local clock = redis.call('time')
local now = clock[1] * 1000000 + clock[2]

local function digits(number)
    return string.format('%.0f', number) -- tostring() would return 1.7e+15
end

-- The fence is the server's clock, so that fences still rise if the last fence was lost (by a
-- restart, FLUSHALL or a failover).
local function next_fence()
    local last = tonumber(redis.call('get', KEYS[4]) or 0)
    return now > last and now or last + 1
end

local function give(token, ttl, fence, memory)
    redis.call('set', KEYS[1], token, 'PX', ttl)
    redis.call('set', KEYS[4], digits(fence), 'PX', memory)
end
