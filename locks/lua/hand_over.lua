-- The queue of a lock. acquire.lua and release.lua include this file after give.lua, and only once
-- they have handled the usual case, in which there are no waiters: the definition of these
-- functions would take longer than the rest of the script.
-- KEYS[1]  the lock; its value is the token of its holder
-- KEYS[2]  sorted set of the waiters' tokens, scored with their places: the server's clock at the
--          arrival, in microseconds, or the last place plus 1 if that is more
-- KEYS[3]  hash with two kinds of fields:
--          token of a waiter -> 'channel ttl over life': the channel to which its process
--          subscribes; its ttl in milliseconds; the server's clock in microseconds at the end of
--          its wait (-1: no end); milliseconds for which its process will renew the lease (-1: no
--          end)
--          '*' -> 'channel end', if the lock was handed to its holder: the channel of the holder's
--          process, and the server's clock in microseconds until which that process renews it (-1:
--          no end)
-- KEYS[4]  the last fence that was given out
--
-- A waiter that cannot be woken is removed from the queue, and gets its place back when it polls.
-- So each dead waiter is examined only once.

-- Time for which the keys of the queue are kept after the moment at which they are used next.
local LINGER_MILLISECONDS = 60000

local function outlive(ttl)
    for key = 2, 3 do
        if redis.call('pttl', KEYS[key]) < ttl + LINGER_MILLISECONDS then
            redis.call('pexpire', KEYS[key], ttl + LINGER_MILLISECONDS)
        end
    end
end

local function leave_queue(token)
    if redis.call('hdel', KEYS[3], token) == 1 then
        redis.call('zrem', KEYS[2], token)
    end
end

-- In a cluster a channel has a hash tag of the lock's slot: its messages stay within the lock's
-- shard.
local function is_sharded(channel)
    return string.find(channel, '{', 1, true) ~= nil
end

-- The reply to PUBLISH would not do: it counts pattern subscribers, too. And a message without a
-- receiver here would reach the replicas, to which the waiters of a demoted master subscribe.
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
-- Returns the token of that waiter, or nil if there is none; then the caller takes or deletes the
-- lock. `asking` is the token of the caller, or nil. If it is first, it is returned, but the lock
-- is still free: the caller takes it, and needs no message, because the script's reply tells it.
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
                -- Give the lock before the message is published: if the server refuses to give it,
                -- no message may be sent.
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
