-- Undo an admission: nothing was begun, and another node may be asked the same. No bill, no `done` marker, no record.
-- KEYS: 1 reservation, 2 leases, 3-5 spend of day, month, total, 6-7 meters of requests, tokens, 8 record,
--       9 record ids
-- ARGV: 1 now, 2 id, 3 owner
-- Image bytes stay charged: they did arrive.

local now, id = now_ms(ARGV[1]), ARGV[2]
local stored = redis.call('HMGET', KEYS[1], 'owner', 'held', 'slot', 'slot_tokens', 'admitted_ms', 'remaining', 'is_again')
if stored[1] ~= ARGV[3] then return {'settled'} end -- another attempt has it already
if stored[2] ~= '0' then
  for i = 3, 5 do redis.call('HINCRBY', KEYS[i], 'held', '-' .. stored[2]) end
end
drop_empty(3)
if (stored[6] or '') ~= '' then refund(KEYS[6], slot_of(tonumber(stored[5])), 1, now) end -- else there was no limit
local slot = tonumber(stored[3])
if slot then refund(KEYS[7], slot, tonumber(stored[4]), now) end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], id)
if stored[7] ~= '1' then -- else it is the record of a bill
  redis.call('DEL', KEYS[8])
  redis.call('ZREM', KEYS[9], id)
end
return {'released'}
