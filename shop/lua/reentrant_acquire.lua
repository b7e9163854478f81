-- Take the lock, or take it once more (Redisson 3.16, as in A3; A0's has HSET for the first HINCRBY).
-- KEYS[1]  the lock, a hash: owner -> how often it holds the lock
-- ARGV[1]  ttl, milliseconds
-- ARGV[2]  owner: client id and thread
-- returns  nil the lock is ours; else the milliseconds until the holder's lease ends
if (redis.call('exists', KEYS[1]) == 0) then
    redis.call('hincrby', KEYS[1], ARGV[2], 1);
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return nil;
end;
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
    redis.call('hincrby', KEYS[1], ARGV[2], 1);
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return nil;
end;
return redis.call('pttl', KEYS[1]);
