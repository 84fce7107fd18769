-- Make tokens and cost of a reservation what is needed now. Growing is asked like a request; a refusal changes nothing.
-- KEYS: 1 done, 2 reservation, 3-5 spend of day, month, total, 6 meter of tokens
-- ARGV: 1 now, 2 tokens, 3 their limit, 4 cost, 5 cap, 6 its key among KEYS, 7 owner

local stored = redis.call('HMGET', KEYS[2], 'held', 'tokens', 'slot', 'slot_tokens', 'owner')
if not stored[1] then return {read_done(KEYS[1]) and 'settled' or 'lost'} end
if stored[5] ~= ARGV[7] then return {'settled'} end -- another attempt took it over

local now = now_ms(ARGV[1])
local more_cost = tonumber(ARGV[4]) - tonumber(stored[1])
if more_cost > 0 and ARGV[5] ~= '' then
  local spend = redis.call('HMGET', KEYS[tonumber(ARGV[6])], 'held', 'settled')
  local used = tonumber(spend[1] or 0) + tonumber(spend[2] or 0)
  if used + more_cost > tonumber(ARGV[5]) then return {'spend', used - tonumber(stored[1])} end
end

local slot, slot_tokens = tonumber(stored[3]), tonumber(stored[4])
local need, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local more_tokens = need - tonumber(stored[2])
if limit and more_tokens > 0 then
  if need > limit then return {'never'} end
  local meter = read_meter(KEYS[6], now)
  local excess = meter.total + more_tokens - limit
  if excess > 0 then return {'rate', math.max(0, limit - meter.total), wait_ms(meter, excess)} end
  -- All of it moves into this slot, so that one slot is enough to give it back to.
  if slot and is_live(slot, now) then
    refund(KEYS[6], slot, slot_tokens, now)
    slot_tokens = slot_tokens + more_tokens
  else
    slot_tokens = more_tokens
  end
  slot = slot_of(now)
  add(meter, slot_tokens)
elseif slot and more_tokens < 0 then
  local back = math.min(-more_tokens, slot_tokens)
  refund(KEYS[6], slot, back, now)
  slot_tokens = slot_tokens - back
end

if more_cost ~= 0 then
  for i = 3, 5 do redis.call('HINCRBY', KEYS[i], 'held', more_cost) end
end
redis.call('HSET', KEYS[2], 'held', ARGV[4], 'tokens', ARGV[2], 'slot', slot or '', 'slot_tokens', slot_tokens)
return {'adjusted'}
