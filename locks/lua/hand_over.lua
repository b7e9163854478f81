-- The queue, for acquire.lua and release.lua, which include it after give.lua, and after the usual
-- case that nobody waits: in that, defining these functions would take longer than all the rest.
-- KEYS[1]  the lock, value: token of its holder
-- KEYS[2]  tokens of the waiters in order of arrival
-- KEYS[3]  token -> 'channel ttl over doubted': where its process listens, its ttl in milliseconds,
--          the server's microsecond at which its wait is over (-1: never), and the one since which
--          its process seems to be gone (0: it does not)
--          '*' -> the channel of the holder, if the lock was handed to it
-- KEYS[4]  the last fence given out
local LINGER = 60000 -- milliseconds that the queue outlives the moment of its next use
local GRACE = 2000000 -- microseconds for which a waiter keeps its place although it seems gone

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

local function parse(waiter)
    return string.match(waiter or '', '^(%S+) (%S+) (%S+) (%S+)$')
end

-- Set since when the process on this channel seems to be gone, for all of its waiters.
local function doubt(channel, since)
    local fields = redis.call('hgetall', KEYS[3])
    for place = 1, #fields, 2 do
        local where, ttl, over, doubted = parse(fields[place + 1])
        if where == channel and (since == '0' or doubted == '0') then
            local waiter = table.concat({where, ttl, over, since}, ' ')
            redis.call('hset', KEYS[3], fields[place], waiter)
        end
    end
end

-- In a cluster a channel has the hash tag of the lock: its messages stay within the lock's shard.
local function is_sharded(channel)
    return string.find(channel, '{', 1, true) ~= nil
end

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
--
-- Counted are the subscribers of the channel (PUBSUB NUMSUB), before anything is published: a
-- PUBLISH counts pattern subscribers as well, and one without a receiver here still reaches the
-- replicas, where the waiters of a demoted master may listen. Whoever cannot be woken keeps its
-- place for a while: a broken subscription is replaced in milliseconds.
local function hand_over(asking, memory)
    local passed, heir = {}, nil
    while not heir do
        local token = redis.call('lpop', KEYS[2])
        if not token then
            break
        end
        local channel, ttl, over, doubted = parse(redis.call('hget', KEYS[3], token))
        local wants = channel and (over == '-1' or tonumber(over) > now)
        if token == asking then
            heir = token
            redis.call('hdel', KEYS[3], token)
        elseif wants and doubted == '0' and has_subscriber(channel) then
            -- Given before it is published: were the server to refuse to give it, nobody must know.
            local fence = next_fence()
            give(token, ttl, fence, memory)
            redis.call('hdel', KEYS[3], token)
            redis.call('hset', KEYS[3], '*', channel)
            publish(channel, token .. ' ' .. digits(fence) .. ' ' .. digits(now))
            heir = token
        elseif wants and (doubted == '0' or now - tonumber(doubted) < GRACE) then
            local since = doubted == '0' and digits(now) or doubted
            local waiter = table.concat({channel, ttl, over, since}, ' ')
            redis.call('hset', KEYS[3], token, waiter)
            passed[#passed + 1] = token
        else
            redis.call('hdel', KEYS[3], token)
        end
        if heir then
            outlive(tonumber(ttl or 0))
        end
    end
    for place = #passed, 1, -1 do
        redis.call('lpush', KEYS[2], passed[place])
    end
    if #passed > 0 then
        outlive(GRACE / 1000)
    end
    return heir
end
