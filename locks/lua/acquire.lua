-- include hand_over
-- Take the lock, or join its queue. Asking again with the same token is the same acquisition, so a
-- reply that got lost may be asked for again.
-- KEYS     see hand_over.lua
-- ARGV[1]  token
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  how long the last fence is remembered, milliseconds
-- ARGV[4]  1: a waiter whose channel has no receiver is dead (0 where the count is not to be had)
-- ARGV[5]  if the lock is taken: 'stay' as you are, 'queue' or 'leave' the queue
-- ARGV[6]  queue: the channel on which this waiter's process listens
-- ARGV[7]  queue: milliseconds for which it waits, -1 for ever
-- returns  {1, fence, now} the lock is ours; {0, milliseconds until the holder's lease ends, now};
--          now is the server's microsecond
local token, ttl, memory = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local holder = redis.call('get', KEYS[1])
if holder == token then
    redis.call('pexpire', KEYS[1], ttl)
    leave_queue(token)
    local fence = tonumber(redis.call('get', KEYS[4]) or next_fence())
    redis.call('set', KEYS[4], digits(fence), 'PX', memory)
    return {1, fence, now}
end

if not holder then
    local heir = hand_over(token, memory, ARGV[4])
    if not heir or heir == token then
        local fence = next_fence()
        give(token, ttl, fence, memory)
        return {1, fence, now}
    end
end

local left = redis.call('pttl', KEYS[1])
if ARGV[5] == 'leave' then
    leave_queue(token)
elseif ARGV[5] == 'queue' then
    local wait = tonumber(ARGV[7])
    local over = wait < 0 and '-1' or digits(now + wait * 1000)
    local added = redis.call('hset', KEYS[3], token, ARGV[6] .. ' ' .. ARGV[2] .. ' ' .. over)
    if added == 1 or not redis.call('lpos', KEYS[2], token) then
        redis.call('rpush', KEYS[2], token)
    end
    outlive(math.max(left, ttl))
end
return {0, left, now}
