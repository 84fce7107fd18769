-- Prolong a lease and remember how far the request came. A reservation that was lost is written again, so that a
-- sweeper can bill it; it holds nothing of a meter or a cap, since nobody knows what they still count.
-- KEYS: 1 done, 2 reservation, 3 leases
-- ARGV: 1 now, 2 id, 3 lease ms, 4 admitted ms, 5 facts, 6 has prefilled, 7 input, 8 output, 9 cached, 10 owner

local owner = redis.call('HGET', KEYS[2], 'owner')
if owner and owner ~= ARGV[10] then return {'settled'} end -- another attempt took it over
if not owner and read_done(KEYS[1]) then return {'settled'} end
if not owner then
  redis.call('HSET', KEYS[2], 'admitted_ms', ARGV[4], 'facts', ARGV[5], 'held', '0', 'tokens', '0', 'slot', '',
    'slot_tokens', '0', 'images', '0', 'owner', ARGV[10])
end
redis.call('HSET', KEYS[2], 'prefilled', ARGV[6], 'input', ARGV[7], 'output', ARGV[8], 'cached', ARGV[9])
redis.call('ZADD', KEYS[3], now_ms(ARGV[1]) + tonumber(ARGV[3]), ARGV[2])
return {'renewed'}
