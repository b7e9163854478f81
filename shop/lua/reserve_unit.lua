-- Reserve one unit of a sale, unless there is a reservation with the same id.
-- KEYS[1]  number of units that are not reserved
-- KEYS[2]  set of the ids of the reservations
-- ARGV[1]  id of the reservation
-- ARGV[2]  initial number of units, used if KEYS[1] does not exist (yet, or any more)
-- ARGV[3]  milliseconds for which both keys are kept after their last use
-- returns  {1, units left} if the unit is reserved now; {0, units left} if it was reserved earlier;
--          {-1, 0} if no unit is left
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
