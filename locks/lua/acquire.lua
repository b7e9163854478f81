-- include give
-- Acquire the lock, or join its queue. A repeated call with the same token is the same acquisition,
-- so the call may be repeated after a lost reply.
-- KEYS     see hand_over.lua
-- ARGV[1]  token
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  milliseconds for which the last fence is remembered
-- ARGV[4]  what to do if the lock is taken: 'stay' in or outside the queue, 'queue' or 'leave' the
--          queue
-- ARGV[5]  with 'queue': the channel to which the waiter's process subscribes
-- ARGV[6]  with 'queue': milliseconds for which the waiter waits; -1 without a limit
-- ARGV[7]  with 'queue': milliseconds for which its process will renew the lease; -1: no limit
-- ARGV[8]  with 'queue': the waiter's place, from the previous reply; 0 if it is new
-- returns  {1, fence, now} if the lock is ours; otherwise {0, milliseconds until the holder's lease
--          ends, now, place, 1 if the waiter had been removed from the queue}. `now` is the
--          server's clock in microseconds. The milliseconds are -1 if the key has no expiry. But
--          if new_token() did not make the holder's token, another program may hold the lock, such
--          as redis-py's Lock, whose release wakes no waiter: then they are 0 to POLL_MILLISECONDS
local POLL_MILLISECONDS = 100
local token, ttl, memory = ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('get', KEYS[1])
if not holder and redis.call('pttl', KEYS[3]) == -2 then -- free, and no waiters
    local fence = next_fence()
    give(token, ttl, fence, memory)
    return {1, fence, now}
end
-- include hand_over
if holder == token then
    redis.call('pexpire', KEYS[1], ttl)
    leave_queue(token)
    local fence = tonumber(redis.call('get', KEYS[4]) or next_fence())
    redis.call('set', KEYS[4], digits(fence), 'PX', memory)
    return {1, fence, now}
end

local place, back = 0, 0
if ARGV[4] == 'queue' then
    local channel, wait, life = ARGV[5], tonumber(ARGV[6]), ARGV[7]
    local over = wait < 0 and '-1' or digits(now + wait * 1000)
    place = tonumber(redis.call('zscore', KEYS[2], token) or 0)
    if place == 0 then
        place = tonumber(ARGV[8])
        if place == 0 then
            local last = redis.call('zrange', KEYS[2], -1, -1, 'WITHSCORES')[2]
            -- The last place in the queue may be higher than the clock, if the clock stepped back.
            place = math.max(now, (tonumber(last) or 0) + 1)
        else
            back = 1
        end
        redis.call('zadd', KEYS[2], digits(place), token)
    end
    redis.call('hset', KEYS[3], token, table.concat({channel, ttl, over, life}, ' '))
end

if not holder then
    -- If the lock was handed to a process that still has to renew it, but its key is gone, that
    -- process is probably paused or cut off, so handing the lock to another waiter of it would cost
    -- another ttl: remove its waiters from the queue. If the process lives, for example because the
    -- key was deleted, they poll and get their places back.
    local star = redis.call('hget', KEYS[3], '*') or ''
    local gone, ends = string.match(star, '^(%S+) (%S+)$')
    redis.call('hdel', KEYS[3], '*')
    if gone and gone ~= ARGV[5] and (ends == '-1' or now < tonumber(ends)) then
        local fields = redis.call('hgetall', KEYS[3])
        for number = 1, #fields, 2 do
            if string.match(fields[number + 1], '^%S+') == gone then
                leave_queue(fields[number])
            end
        end
    end
    local heir = hand_over(token, memory)
    if not heir or heir == token then
        local fence = next_fence()
        give(token, ttl, fence, memory)
        return {1, fence, now}
    end
end

local left = redis.call('pttl', KEYS[1])
if ARGV[4] == 'leave' then
    leave_queue(token)
elseif ARGV[4] == 'queue' then
    outlive(math.max(left, tonumber(ttl)))
end
local TOKEN = '^%d+%-' .. string.rep('%x', 32) .. '$' -- the format of new_token() in lease.py
if holder and not string.match(holder, TOKEN) and (left < 0 or left > POLL_MILLISECONDS) then
    left = POLL_MILLISECONDS
end
return {0, left, now, place, back}
