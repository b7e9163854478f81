-- Count one attempt, or say how long to wait: an attempt over the limit is not counted.
-- A3 counts with INCR and sets EXPIRE apart: a crash between them blocks that visitor forever.
-- KEYS[1]  who is counted
-- ARGV[1]  attempts that are allowed in a window
-- ARGV[2]  the window, milliseconds; it begins with the first attempt
-- returns  0 go on, else milliseconds until the window ends
local is_over = tonumber(redis.call('get', KEYS[1]) or 0) >= tonumber(ARGV[1])
if not is_over then
    redis.call('incr', KEYS[1])
end
if redis.call('pttl', KEYS[1]) < 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return is_over and math.max(redis.call('pttl', KEYS[1]), 1) or 0
