-- Give back the unit that an attempt holds.
-- KEYS[1]  units that nobody holds
-- KEYS[2]  the attempts that hold one
-- ARGV[1]  the attempt
-- returns  1 given back, 0 it held none
if redis.call('srem', KEYS[2], ARGV[1]) == 0 then
    return 0
end
if redis.call('exists', KEYS[1]) == 1 then
    redis.call('incr', KEYS[1])
end
return 1
