-- Reserve one unit of a sale for one attempt. The same attempt never holds two.
-- KEYS[1]  units that nobody holds
-- KEYS[2]  the attempts that hold one
-- ARGV[1]  the attempt
-- ARGV[2]  units to begin with, where the counter is not there yet (or no longer)
-- ARGV[3]  milliseconds for which both are kept after their last use
-- returns  {1, units left} reserved now; {0, units left} held already; {-1, 0} sold out
redis.call('set', KEYS[1], ARGV[2], 'NX')
local left = tonumber(redis.call('get', KEYS[1]))
local answer = {1, left - 1}
if redis.call('sismember', KEYS[2], ARGV[1]) == 1 then
    answer = {0, left}
elseif left < 1 then
    answer = {-1, 0}
else
    redis.call('decr', KEYS[1])
    redis.call('sadd', KEYS[2], ARGV[1])
end
redis.call('pexpire', KEYS[1], ARGV[3])
redis.call('pexpire', KEYS[2], ARGV[3])
return answer
