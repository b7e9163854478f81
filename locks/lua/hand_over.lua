-- The queue, for acquire.lua and release.lua, which include it after give.lua, and after the usual
-- case that nobody waits: in that, defining these functions would take longer than all the rest.
-- KEYS[1]  the lock, value: token of its holder
-- KEYS[2]  tokens of the waiters, scored with their places: the server's microsecond of arrival
-- KEYS[3]  token -> 'channel ttl over life': where its process listens, its ttl in milliseconds,
--          the server's microsecond at which its wait is over (-1: never), and the milliseconds for
--          which its process will renew the lease (-1: without an end)
--          '*' -> 'channel end' of the holder, if the lock was handed to it: its process renews it
--          until that microsecond
-- KEYS[4]  the last fence given out
--
-- A waiter that cannot be woken is taken out of the queue, and has its place back when it asks
-- again. So each costs one look, however many there are.
local LINGER = 60000 -- milliseconds that the queue outlives the moment of its next use

local function outlive(ttl)
    for key = 2, 3 do
        if redis.call('pttl', KEYS[key]) < ttl + LINGER then
            redis.call('pexpire', KEYS[key], ttl + LINGER)
        end
    end
end

local function leave_queue(token)
    if redis.call('hdel', KEYS[3], token) == 1 then
        redis.call('zrem', KEYS[2], token)
    end
end

-- In a cluster a channel has the hash tag of the lock: its messages stay within the lock's shard.
local function is_sharded(channel)
    return string.find(channel, '{', 1, true) ~= nil
end

-- Counted before anything is published: a PUBLISH counts pattern subscribers as well, and one
-- without a receiver here still reaches the replicas, where the waiters of a demoted master listen.
local function has_subscriber(channel)
    if is_sharded(channel) then
        return redis.call('pubsub', 'shardnumsub', channel)[2] > 0
    end
    return redis.call('pubsub', 'numsub', channel)[2] > 0
end

local function publish(channel, message)
    if is_sharded(channel) then
        redis.call('spublish', channel, message)
    else
        redis.call('publish', channel, message)
    end
end

-- Hand the free lock to the first waiter that still wants it and whose process can be woken.
-- Returns its token, or nil when there is none: then the lock is the caller's to take or delete.
-- Stops at `asking`, who gets the reply instead of a message.
local function hand_over(asking, memory)
    local listens = {}
    while true do
        local token = redis.call('zpopmin', KEYS[2])[1]
        if not token then
            redis.call('del', KEYS[3])
            return nil
        end
        local waiter = redis.call('hget', KEYS[3], token) or ''
        local channel, ttl, over, life = string.match(waiter, '^(%S+) (%S+) (%S+) (%S+)$')
        redis.call('hdel', KEYS[3], token)
        if token == asking then
            outlive(tonumber(ttl or 0))
            return token
        end
        if channel and (over == '-1' or tonumber(over) > now) then
            if listens[channel] == nil then
                listens[channel] = has_subscriber(channel)
            end
            if listens[channel] then
                -- Given before it is published: were the server to refuse to give it, nobody must
                -- know.
                local fence = next_fence()
                give(token, ttl, fence, memory)
                local ends = life == '-1' and life or digits(now + life * 1000)
                redis.call('hset', KEYS[3], '*', channel .. ' ' .. ends)
                outlive(tonumber(ttl))
                publish(channel, token .. ' ' .. digits(fence) .. ' ' .. digits(now))
                return token
            end
        end
    end
end
