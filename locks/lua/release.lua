-- Give the lock to the next waiter, or delete it if there is none. If the token does not hold the
-- lock, it leaves the queue. So a waiter calls this to give up, whether or not it was given the
-- lock in the meantime.
-- KEYS     see hand_over.lua
-- ARGV[1]  token, or '*' to release the lock of any holder
-- ARGV[2]  milliseconds for which the last fence is remembered from now on
-- returns  1 if the lock was released; 0 if another token holds it; -1 if the lock was free
local holder = redis.call('get', KEYS[1])
if holder == ARGV[1] and redis.call('pttl', KEYS[3]) == -2 then -- no waiters
    redis.call('pexpire', KEYS[4], ARGV[2])
    return redis.call('del', KEYS[1])
end
-- include give
-- include hand_over
if holder ~= ARGV[1] and not (holder and ARGV[1] == '*') then
    if ARGV[1] ~= '*' then -- in KEYS[3] that field is the mark of a process, not a waiter
        leave_queue(ARGV[1])
    end
    return holder and 0 or -1
end
if not hand_over(nil, ARGV[2]) then
    redis.call('pexpire', KEYS[4], ARGV[2])
    redis.call('del', KEYS[1])
end
return 1
