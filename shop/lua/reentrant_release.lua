-- Release the lock once. After the last release, publish a message for the waiters. The script of
-- Redisson 3.16, as in article A3. (The older one of article A0 also publishes, and returns 1, if
-- the key does not exist.)
-- KEYS[1]  the lock
-- KEYS[2]  the channel to which the waiters subscribe
-- ARGV[1]  the message that the lock was released
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  owner
-- returns  nil if the lock is not ours; 0 if we still hold it; 1 if it is free now
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
