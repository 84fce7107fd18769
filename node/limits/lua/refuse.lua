-- Keep a refused request in the log. Only so many of an organization are kept, so that a flood can't fill the store.
-- KEYS: 1 record of an admitted request, 2 ids of refused, 3 records of refused
-- ARGV: 1 id, 2 record, 3 most, 4 ms

if redis.call('EXISTS', KEYS[1]) == 1 then return {} end -- a retry of what was let in
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
local over = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[3])
if over > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[2], over)
  for i = 1, #oldest, 2 do redis.call('HDEL', KEYS[3], oldest[i]) end
end
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {}
