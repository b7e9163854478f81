-- Count one attempt to log in under every key, unless one of them is over its limit already. Counted
-- before the password is looked at: of many attempts at once no more than the limit get through.
-- KEYS      what is counted: the address, the account
-- ARGV[1]   the window, milliseconds; it begins with the first attempt
-- ARGV[i+1] attempts that KEYS[i] is allowed in a window
-- returns   0 go on, else milliseconds until the longest window of those that are over ends
local wait = 0
for i, key in ipairs(KEYS) do
    if tonumber(redis.call('get', key) or 0) >= tonumber(ARGV[i + 1]) then
        wait = math.max(wait, redis.call('pttl', key), 1)
    end
end
if wait > 0 then
    return wait
end
for _, key in ipairs(KEYS) do
    redis.call('incr', key)
    if redis.call('pttl', key) < 0 then
        redis.call('pexpire', key, ARGV[1])
    end
end
return 0
