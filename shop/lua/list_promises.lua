-- What this Redis has promised of a sale, at one moment.
-- KEYS[1]  units of the sale that nobody was promised
-- KEYS[2]  the stream of the promises whose order is not written yet
-- ARGV[1]  the sale
-- returns  {units left, or '' where this Redis does not sell it; the entries of the sale, each
--          {id, units that there were, all that its order will have}}
local found = {}
for _, entry in ipairs(redis.call('xrange', KEYS[2], '-', '+')) do
    local fields = entry[2]
    if fields[2] == ARGV[1] then
        found[#found + 1] = {entry[1], fields[4], fields[6]}
    end
end
return {redis.call('get', KEYS[1]) or '', found}
