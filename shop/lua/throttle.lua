-- Count one attempt under every key, and say how long to wait if one of them is over the limit.
-- A3 counts with INCR and sets EXPIRE apart: a crash between them blocks that visitor for ever.
-- KEYS     one per thing that is counted: the buyer, the address
-- ARGV[1]  attempts that are allowed in a window
-- ARGV[2]  the window, milliseconds; it begins with the first attempt
-- returns  0 go on, else milliseconds until the window ends
local wait = 0
for _, key in ipairs(KEYS) do
    local count = redis.call('incr', key)
    if redis.call('pttl', key) < 0 then
        redis.call('pexpire', key, ARGV[2])
    end
    if count > tonumber(ARGV[1]) then
        wait = math.max(wait, redis.call('pttl', key), 1)
    end
end
return wait
