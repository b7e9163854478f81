-- Remove settled promises from the stream, and count each of them once, however often this script
-- runs for it.
-- KEYS[1]    the stream
-- KEYS[2]    the stream of those that are broken
-- KEYS[3..]  two keys for each promise, both of its sale: the number of units that are promised to
--            nobody, and the books: a hash with the number of promises by their ending
-- ARGV[1]    milliseconds for which the books are kept after their last use
-- ARGV[2]    how many that are broken are kept
-- ARGV[3..]  for each promise: its id, and `kept`, `broken` (its order cannot be written) or
--            `again` (its buyer has another order: the unit is free again)
-- returns    how many were on the stream until now
local clock = redis.call('time')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local taken = 0
for at = 3, #ARGV, 2 do
    local id, ending, count, books = ARGV[at], ARGV[at + 1], KEYS[at], KEYS[at + 1]
    local entry = ending == 'broken' and redis.call('xrange', KEYS[1], id, id)[1]
    if entry then
        redis.call('xadd', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'entry', id, unpack(entry[2]))
    end
    if redis.call('xdel', KEYS[1], id) == 1 then
        taken = taken + 1
        redis.call('hincrby', books, ending, 1)
        local lag = math.max(0, now - tonumber(string.match(id, '^%d+')))
        local step = lag < 100 and 1 or lag < 1000 and 10 or 100
        redis.call('hincrby', books, 'lag:' .. math.ceil(math.min(lag, 60000) / step) * step, 1)
        if lag > tonumber(redis.call('hget', books, 'longest') or -1) then
            redis.call('hset', books, 'longest', lag)
        end
        if ending == 'again' and redis.call('exists', count) == 1 then
            redis.call('incr', count)
        end
        redis.call('pexpire', books, ARGV[1])
    end
end
return taken
