-- Give the lock back once, and wake who waits when that was the last time (Redisson 3.16, as in
-- A3; A0's older one also publishes, and returns 1, when the key is not there at all).
-- KEYS[1]  the lock
-- KEYS[2]  the channel on which the others wait
-- ARGV[1]  the message that says unlocked
-- ARGV[2]  ttl, milliseconds
-- ARGV[3]  owner
-- returns  nil it is not ours, 0 still held by us, 1 free
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then
    return nil;
end;
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
if (counter > 0) then
    redis.call('pexpire', KEYS[1], ARGV[2]);
    return 0;
else
    redis.call('del', KEYS[1]);
    redis.call('publish', KEYS[2], ARGV[1]);
    return 1;
end;
return nil;
