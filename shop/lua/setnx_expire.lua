-- SETNX and EXPIRE in one step (article A4). The article's script has two mistakes. It does not
-- compile, because two strings are joined without a space, to "== 1 thenredis.call(". And EXPIRE
-- takes seconds, so a ttl below one second becomes EXPIRE 0, which deletes the key; PEXPIRE takes
-- milliseconds.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  ttl in milliseconds
-- returns  1 if the lock is ours; 0 if it is taken
if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then
    redis.call('pexpire',KEYS[1],ARGV[2]) return 1 else return 0 end
