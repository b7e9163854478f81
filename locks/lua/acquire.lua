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
-- returns  {1, fence, now} the lock is ours; {0, milliseconds until the holder's lease ends, now};
--          now is the server's microsecond; fewer milliseconds if the holder took the key without
--          us, as redis-py's Lock does: its release wakes nobody
local TOKEN = '^%d+%-%x+$' -- what new_token() in lease.py makes
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

if not holder then
    -- A lease that was handed over and ended without a release: its process was paused or cut off,
    -- and each of its waiters would cost another ttl. If it is alive, it asks again and is believed.
    local gone = redis.call('hget', KEYS[3], '*')
    if gone then
        redis.call('hdel', KEYS[3], '*')
        if gone ~= ARGV[5] then
            doubt(gone, digits(now))
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
    local channel, wait = ARGV[5], tonumber(ARGV[6])
    local over = wait < 0 and '-1' or digits(now + wait * 1000)
    local before = redis.call('hget', KEYS[3], token)
    local _, _, _, doubted = parse(before)
    if doubted and doubted ~= '0' then
        doubt(channel, '0')
    end
    redis.call('hset', KEYS[3], token, table.concat({channel, ttl, over, '0'}, ' '))
    if not before or not redis.call('lpos', KEYS[2], token) then
        redis.call('rpush', KEYS[2], token)
    end
    outlive(math.max(left, tonumber(ttl)))
end
if holder and not string.match(holder, TOKEN) and (left < 0 or left > POLL) then
    left = POLL
end
return {0, left, now}
