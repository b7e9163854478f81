-- Give the lock a new ttl if it is still ours (Redisson 3.16, as in A3).
-- KEYS[1]  the lock
-- ARGV[1]  ttl, milliseconds
-- ARGV[2]  owner
-- returns  1 renewed, 0 it was not ours
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return 1;
end;
return 0;
