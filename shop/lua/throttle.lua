-- Count one attempt, unless the limit is reached. The script of article A3 sends INCR and EXPIRE
-- separately: after a crash between them the visitor would be blocked forever.
-- KEYS[1]  number of attempts of one visitor in the current window
-- ARGV[1]  maximum number of attempts in a window
-- ARGV[2]  length of a window in milliseconds; it begins with the first attempt
-- returns  0 if the attempt was counted; otherwise the milliseconds until the window ends
local is_over = tonumber(redis.call('get', KEYS[1]) or 0) >= tonumber(ARGV[1])
if not is_over then
    redis.call('incr', KEYS[1])
end
if redis.call('pttl', KEYS[1]) < 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return is_over and math.max(redis.call('pttl', KEYS[1]), 1) or 0
