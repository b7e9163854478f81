-- Set a new ttl for the lock if this owner still has it (Redisson 3.16, as in article A3).
-- KEYS[1]  the lock
-- ARGV[1]  ttl in milliseconds
-- ARGV[2]  owner
-- returns  1 if the lock was renewed; 0 if it is not ours
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return 1;
end;
return 0;
