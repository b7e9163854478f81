-- Take back one attempt that turned out to be right. One whose window is over has nothing to take
-- back, and a key without an end must not be made.
-- KEYS     what login_attempt.lua counted
-- returns  0
for _, key in ipairs(KEYS) do
    local count = tonumber(redis.call('get', key) or 0)
    if count > 0 then
        redis.call('set', key, count - 1, 'px', math.max(redis.call('pttl', key), 1))
    end
end
return 0
