-- Drop an ended lease whose reservation is lost: there is nothing left to bill it by.
-- KEYS: 1 reservation, 2 leases
-- ARGV: 1 now, 2 id

local ends = redis.call('ZSCORE', KEYS[2], ARGV[2])
if ends and tonumber(ends) < now_ms(ARGV[1]) and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', KEYS[2], ARGV[2])
end
return {}
