-- Promise one unit of a sale to one attempt, and put the promise on the stream: both or neither. The
-- same attempt is never promised two, so a lost reply is answered by asking again.
-- KEYS[1]  units of the sale that nobody was promised; not there: this Redis does not sell it
-- KEYS[2]  what this attempt was promised
-- KEYS[3]  the stream of the promises whose order is not written yet
-- ARGV[1]  order, sale and fingerprint of the promise
-- ARGV[2]  the sale
-- ARGV[3]  all that the order will have
-- ARGV[4]  the most promises that may be on the stream
-- ARGV[5]  milliseconds for which the first two keys are kept after their last use
-- ARGV[6]  the longest that the oldest of them may have been there, milliseconds
-- returns  {'promised' or 'held' (since before), ARGV[1] of the promise and the units that there were};
--          {'sold out', ''}; {'behind', ''} too many are on the stream, or one for too long;
--          {'not open', ''}
local held = redis.call('get', KEYS[2])
if held then
    return {'held', held}
end
local left = redis.call('get', KEYS[1])
if not left then
    return {'not open', ''}
end
if tonumber(left) < 1 then
    return {'sold out', ''}
end
if redis.call('xlen', KEYS[3]) >= tonumber(ARGV[4]) then
    return {'behind', ''}
end
local oldest = redis.call('xrange', KEYS[3], '-', '+', 'COUNT', 1)[1]
if oldest then
    local clock = redis.call('time')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    if now - tonumber(string.match(oldest[1], '^%d+')) > tonumber(ARGV[6]) then
        return {'behind', ''}
    end
end
redis.call('decr', KEYS[1])
redis.call('pexpire', KEYS[1], ARGV[5])
held = ARGV[1] .. ' ' .. left
redis.call('set', KEYS[2], held, 'PX', ARGV[5])
redis.call('xadd', KEYS[3], '*', 'sale', ARGV[2], 'seen', left, 'order', ARGV[3])
return {'promised', held}
