-- Read the state of the lock without changing it.
-- KEYS     see hand_over.lua
-- returns  {token of the holder, or false; milliseconds until its lease ends, -2 if the lock is
--          free; last fence, or false; tokens of the waiters in order of arrival}
return {
    redis.call('get', KEYS[1]),
    redis.call('pttl', KEYS[1]),
    redis.call('get', KEYS[4]),
    redis.call('zrange', KEYS[2], 0, -1),
}
