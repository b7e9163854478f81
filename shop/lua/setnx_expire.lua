-- SETNX and EXPIRE in one step (article A4). As printed there it does not compile: two strings are joined
-- without a space, to "== 1 thenredis.call(". And it has EXPIRE, whose seconds turn a ttl below
-- one into EXPIRE 0, which deletes the key; PEXPIRE takes milliseconds.
-- KEYS[1]  the lock
-- ARGV[1]  our token
-- ARGV[2]  ttl, milliseconds
-- returns  1 the lock is ours, 0 it is taken
if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then
    redis.call('pexpire',KEYS[1],ARGV[2]) return 1 else return 0 end
