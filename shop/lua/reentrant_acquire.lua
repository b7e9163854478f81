-- Acquire the lock, or acquire it once more if this owner has it already. The script of Redisson
-- 3.16, as in article A3. (That of article A0 has HSET instead of the first HINCRBY.)
-- KEYS[1]  the lock, a hash: owner -> number of its acquisitions
-- ARGV[1]  ttl in milliseconds
-- ARGV[2]  owner: id of the client and the thread
-- returns  nil if the lock is ours; otherwise the milliseconds until the holder's lease ends
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
