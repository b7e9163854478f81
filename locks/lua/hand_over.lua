-- What acquire.lua and release.lua share (`-- include` in their first lines).
-- KEYS[1]  the lock, value: token of its holder
-- KEYS[2]  tokens of the waiters in order of arrival
-- KEYS[3]  token -> 'channel ttl over': where its process listens, its ttl in milliseconds, and the
--          server's microsecond at which its wait is over (-1: never)
-- KEYS[4]  the last fence given out
local LINGER = 60000 -- milliseconds that the queue outlives the moment of its next use

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

local function outlive(ttl)
    for key = 2, 3 do
        if redis.call('pttl', KEYS[key]) < ttl + LINGER then
            redis.call('pexpire', KEYS[key], ttl + LINGER)
        end
    end
end

local function leave_queue(token)
    if redis.call('hdel', KEYS[3], token) == 1 then
        redis.call('lrem', KEYS[2], 0, token)
    end
end

-- Hand the free lock to the first waiter that still wants it and whose process is alive, which is
-- told on its channel. Returns its token, or nil when nobody waits: then the lock is the caller's to
-- take or delete. Stops at `asking`, who is told by the reply instead.
local function hand_over(asking, memory, count_receivers)
    while true do
        local token = redis.call('lpop', KEYS[2])
        if not token then
            return nil
        end
        local waiter = redis.call('hget', KEYS[3], token)
        redis.call('hdel', KEYS[3], token)
        if token == asking then
            return token
        end
        local channel, ttl, over = string.match(waiter or '', '^(%S+) (%S+) (%S+)$')
        if channel and (over == '-1' or tonumber(over) > now) then
            -- Given before it is told: were the server to refuse to give it, nobody must have heard.
            local fence = next_fence()
            give(token, ttl, fence, memory)
            local message = token .. ' ' .. digits(fence) .. ' ' .. digits(now)
            if redis.call('publish', channel, message) > 0 or count_receivers ~= '1' then
                outlive(tonumber(ttl))
                return token
            end
        end
    end
end
