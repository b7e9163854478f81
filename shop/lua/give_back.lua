-- Cancel a reservation, so that another buyer can reserve its unit.
-- KEYS[1]  number of units that are not reserved
-- KEYS[2]  set of the ids of the reservations
-- ARGV[1]  id of the reservation
-- returns  1 if it was cancelled; 0 if there was no reservation with this id
if redis.call('srem', KEYS[2], ARGV[1]) == 0 then
    return 0
end
if redis.call('exists', KEYS[1]) == 1 then
    redis.call('incr', KEYS[1])
end
return 1
