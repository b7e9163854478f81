-- Remove settled promises from the stream, and count them by their ending. A promise that is no
-- longer on the stream is not counted again.
-- KEYS[1]    stream of the promises
-- KEYS[2]    stream of the promises whose orders cannot be written (broken promises)
-- KEYS[3..]  two keys for each promise: the counter of its sale (number of units that are not
--            promised), and a hash that counts the promises of the sale by their ending
-- ARGV[1]    milliseconds for which the hash is kept after its last use
-- ARGV[2]    maximum length of KEYS[2]
-- ARGV[3..]  for each promise its id on the stream and its ending: `kept`, `broken` (its order
--            cannot be written) or `again` (its buyer has another order, so the unit is free again)
-- returns    number of these promises that were still on the stream
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local removed = 0
-- Each promise has two values in ARGV and two in KEYS, both from 3 on, so they share an index.
for index = 3, #ARGV, 2 do
    local id, ending = ARGV[index], ARGV[index + 1]
    local counter_key, endings_key = KEYS[index], KEYS[index + 1]
    if ending == 'broken' then
        local entry = redis.call('xrange', KEYS[1], id, id)[1]
        if entry then
            redis.call('xadd', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'entry', id, unpack(entry[2]))
        end
    end
    if redis.call('xdel', KEYS[1], id) == 1 then
        removed = removed + 1
        redis.call('hincrby', endings_key, ending, 1)
        local lag = math.max(0, now - tonumber(string.match(id, '^%d+')))
        -- A lag is counted in the field of the next multiple of `step`, so that there are few fields.
        local step = lag < 100 and 1 or lag < 1000 and 10 or 100
        local rounded_lag = math.ceil(math.min(lag, 60000) / step) * step
        redis.call('hincrby', endings_key, 'lag:' .. rounded_lag, 1)
        if lag > tonumber(redis.call('hget', endings_key, 'longest') or -1) then
            redis.call('hset', endings_key, 'longest', lag)
        end
        if ending == 'again' and redis.call('exists', counter_key) == 1 then
            redis.call('incr', counter_key)
        end
        redis.call('pexpire', endings_key, ARGV[1])
    end
end
return removed
