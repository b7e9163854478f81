-- include give
-- Take the lock, or join its queue. Asking again with the same token is the same acquisition, so a
-- reply that got lost may be asked for again.
-- KEYS     see hand_over.lua
-- ARGV[1]  token
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  how long the last fence is remembered, milliseconds
-- ARGV[4]  if the lock is taken: 'stay' as you are, 'queue' or 'leave' the queue
-- ARGV[5]  queue: the channel on which this waiter's process listens
-- ARGV[6]  queue: milliseconds for which it waits, -1 forever
-- ARGV[7]  queue: milliseconds for which its process will renew the lease, -1 without an end
-- ARGV[8]  queue: its place, from the reply before; 0: it comes
-- returns  {1, fence, now} the lock is ours; {0, milliseconds until the holder's lease ends, now,
--          place, 1 if it had been taken out of the queue}; now is the server's microsecond; fewer
--          milliseconds if the holder took the key without us, as redis-py's Lock does: its release
--          wakes nobody
local POLL = 100 -- milliseconds
local token, ttl, memory = ARGV[1], ARGV[2], ARGV[3]

local holder = redis.call('get', KEYS[1])
if not holder and redis.call('pttl', KEYS[3]) == -2 then -- free, and nobody waits
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
            place = math.max(now, (tonumber(last) or 0) + 1) -- also after the clock stepped back
        else
            back = 1
        end
        redis.call('zadd', KEYS[2], digits(place), token)
    end
    redis.call('hset', KEYS[3], token, table.concat({channel, ttl, over, life}, ' '))
end

if not holder then
    -- A lease that was handed over and ended too soon without a release: its process is paused or
    -- cut off, and each of its waiters would cost another ttl. If it lives, one of them asks again.
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
local TOKEN = '^%d+%-' .. string.rep('%x', 32) .. '$' -- what new_token() in lease.py makes
if holder and not string.match(holder, TOKEN) and (left < 0 or left > POLL) then
    left = POLL
end
return {0, left, now, place, back}
