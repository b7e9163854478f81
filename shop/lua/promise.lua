-- Promise one unit of a sale to a buyer: decrement the counter and put the promise on the stream.
-- A repeated request with the same reservation id gets the earlier promise, so that it is safe to
-- repeat the request after a lost reply.
-- KEYS[1]  counter: number of units of the sale that are not promised. If it does not exist, Redis
--          does not sell this sale
-- KEYS[2]  the earlier promise of this reservation id: order, sale, fingerprint and units before it
-- KEYS[3]  stream of the promises whose orders are not written yet
-- ARGV[1]  order, sale and fingerprint of the promise
-- ARGV[2]  number of the sale
-- ARGV[3]  the order as JSON
-- ARGV[4]  maximum number of promises on the stream
-- ARGV[5]  milliseconds for which KEYS[1] and KEYS[2] are kept after their last use
-- ARGV[6]  maximum age of the oldest promise on the stream, in milliseconds
-- returns  {'promised', the value of KEYS[2]} if the unit is promised now
--          {'held', the value of KEYS[2]} if it was promised earlier
--          {'sold out', ''} if no unit is left
--          {'behind', ''} if too many promises are on the stream, or one is too old
--          {'not open', ''} if the counter does not exist
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
