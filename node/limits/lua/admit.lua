-- Reserve all that a request may need, or write nothing.
-- KEYS: 1 done, 2 reservation, 3 leases, 4-6 spend of day, month, total, 7-9 meters of requests, tokens, images,
--       10 record, 11 record ids
-- ARGV: 1 now, 2 day, 3 id, 4 lease ms, 5 concurrency limit, 6 cost, 7 cap, 8 its key among KEYS,
--       9-14 need and limit of each meter, 15 facts, 16 record, 17 record ms, 18 oldest id kept, 19 books s,
--       20 owner, 21 prefix of usage fields, 22 done ms
-- A limit or cap of '' is none.

local now, id, cost = now_ms(ARGV[1]), ARGV[3], ARGV[6]

-- The names hold the day, and the caller's clock may be ahead of this one.
if day_of(now) ~= tonumber(ARGV[2]) then return {'day', now} end

local stored = redis.call('HMGET', KEYS[2], 'admitted_ms', 'remaining', 'reset_ms', 'owner')
local billed, bar, _, billed_ms, sums = read_done(KEYS[1])
if stored[4] ~= ARGV[20] and not is_later(ARGV[20], bar) then return {'settled'} end
local admitted = now
if billed and not stored[1] then
  -- A node may have died, or been taken for dead, with a bill booked and an answer that nobody heard: a later attempt
  -- answers, and its bill takes the place of that one. Of another day or model the sums are others.
  if day_of(billed_ms) ~= day_of(now) or sums ~= sums_of(ARGV[21]) then return {'settled'} end
  admitted = billed_ms
end
if stored[1] then
  -- One that was asked earlier and froze has read its request only now: another has it, and its bill is to count.
  if is_later(stored[4], ARGV[20]) then return {'settled'} end
  if stored[4] ~= ARGV[20] then -- another attempt at the same request: the earlier one broke before its answer
    redis.call('HSET', KEYS[2], 'owner', ARGV[20], 'facts', ARGV[15])
    redis.call('HDEL', KEYS[2], 'prefilled', 'input', 'output', 'cached')
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), id)
    if not billed then redis.call('SET', KEYS[10], ARGV[16], 'PX', ARGV[17]) end -- it tells of the node that has it
  end
  return {'admitted', stored[1], stored[2] or '', stored[3] or ''}
end

-- What was within limits and cap once is not refused for what it took then.
local is_new = not billed
if is_new and ARGV[5] ~= '' then
  -- Ended leases stay for the sweeper; they only don't count.
  local running = redis.call('ZCOUNT', KEYS[3], now, '+inf')
  if running >= tonumber(ARGV[5]) then return {'concurrency', running} end
end

if is_new and ARGV[7] ~= '' then
  local spend = redis.call('HMGET', KEYS[tonumber(ARGV[8])], 'held', 'settled')
  local used = tonumber(spend[1] or 0) + tonumber(spend[2] or 0)
  if used + tonumber(cost) > tonumber(ARGV[7]) then return {'spend', used} end
end

local meters, refused = {}, nil
for i = 1, 3 do
  local need, limit = tonumber(ARGV[7 + 2 * i]), tonumber(ARGV[8 + 2 * i])
  if not is_new and i == 1 then need = 0 end -- it is one request still
  if limit and need > 0 then
    if is_new and need > limit then return {'never', i - 1} end
    local meter = read_meter(KEYS[6 + i], now)
    meter.need = need
    meters[i] = meter
    local excess = meter.total + need - limit
    if is_new and excess > 0 then
      local wait = wait_ms(meter, excess)
      if not refused or wait > refused[4] then
        refused = {'rate', i - 1, math.max(0, limit - meter.total), wait}
      end
    end
  end
end
if refused then return refused end

for i = 1, 3 do
  if meters[i] then add(meters[i], meters[i].need) end
end
local remaining, reset = '', ''
if meters[1] then
  remaining = tonumber(ARGV[10]) - meters[1].total - meters[1].need
  reset = leaves_in_ms(meters[1], meters[1].slots[1] or slot_of(now))
end
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), id)
if cost ~= '0' then
  for i = 4, 6 do redis.call('HINCRBY', KEYS[i], 'held', cost) end
  redis.call('EXPIRE', KEYS[4], ARGV[19])
  redis.call('EXPIRE', KEYS[5], ARGV[19])
end
-- No expiry: what it holds of a cap would stay held for ever. A sweeper ends it.
redis.call('HSET', KEYS[2], 'admitted_ms', admitted, 'facts', ARGV[15], 'held', cost, 'tokens', ARGV[11],
  'slot', meters[2] and slot_of(now) or '', 'slot_tokens', meters[2] and ARGV[11] or '0', 'images', ARGV[13],
  'remaining', remaining, 'reset_ms', reset, 'owner', ARGV[20], 'is_again', billed and 1 or 0)
if is_new then
  redis.call('SET', KEYS[10], ARGV[16], 'PX', ARGV[17])
  redis.call('ZADD', KEYS[11], 0, id)
else -- the record of its bill stays until there is another one, and that of a free bill is kept for as long as it may take
  redis.call('PEXPIRE', KEYS[1], ARGV[22])
end
for _, old in ipairs(redis.call('ZRANGEBYLEX', KEYS[11], '-', '(' .. ARGV[18], 'LIMIT', 0, 16)) do
  redis.call('ZREM', KEYS[11], old)
end
return {'admitted', admitted, remaining, reset}
