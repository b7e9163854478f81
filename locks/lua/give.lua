-- The server's clock, and what gives the lock to a token. Included by acquire.lua and release.lua.
-- KEYS  see hand_over.lua
local clock = redis.call('time')
local now = clock[1] * 1000000 + clock[2]

local function digits(number)
    return string.format('%.0f', number) -- tostring would give 1.7e+15
end

-- The server's clock keeps fences rising when the last one was lost (restart, FLUSHALL, failover).
local function next_fence()
    local last = tonumber(redis.call('get', KEYS[4]) or 0)
    return now > last and now or last + 1
end

local function give(token, ttl, fence, memory)
    redis.call('set', KEYS[1], token, 'PX', ttl)
    redis.call('set', KEYS[4], digits(fence), 'PX', memory)
end
