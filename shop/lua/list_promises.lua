-- Read the counter of a sale and its promises on the stream, at one moment.
-- KEYS[1]  counter: number of units of the sale that are not promised
-- KEYS[2]  stream of the promises whose orders are not written yet
-- ARGV[1]  number of the sale
-- returns  {counter, or '' if it does not exist; list of the promises of the sale}. A promise is
--          {id on the stream, number of units before the promise, the order as JSON}
local promises = {}
for _, entry in ipairs(redis.call('xrange', KEYS[2], '-', '+')) do
    local fields = entry[2] -- 'sale', number, 'seen', units, 'order', JSON
    if fields[2] == ARGV[1] then
        promises[#promises + 1] = {entry[1], fields[4], fields[6]}
    end
end
return {redis.call('get', KEYS[1]) or '', promises}
