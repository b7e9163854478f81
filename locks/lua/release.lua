-- Give the lock to the next waiter, or delete it. If it is not ours, leave its queue: this is also
-- how a waiter gives up, whether or not the lock was handed to it meanwhile.
-- KEYS     see hand_over.lua
-- ARGV[1]  token; '*': whoever holds it
-- ARGV[2]  how long the last fence is remembered from now on, milliseconds
-- returns  1 it was ours, 0 somebody else has it, -1 nobody has it
local holder = redis.call('get', KEYS[1])
if holder == ARGV[1] and redis.call('pttl', KEYS[3]) == -2 then -- nobody waits
    redis.call('pexpire', KEYS[4], ARGV[2])
    return redis.call('del', KEYS[1])
end
-- include give
-- include hand_over
if holder ~= ARGV[1] and not (holder and ARGV[1] == '*') then
    leave_queue(ARGV[1])
    return holder and 0 or -1
end
if not hand_over(nil, ARGV[2]) then
    redis.call('pexpire', KEYS[4], ARGV[2])
    redis.call('del', KEYS[1])
end
return 1
