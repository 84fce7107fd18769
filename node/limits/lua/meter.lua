-- Before every script: the clock, and the meters. A meter is a hash of sums by slots of 5 s.
-- 13 slots count: the one that runs and the 12 before it. With 12 in all, a need from the end of a slot would leave
-- after 55 s, and a span of 60 s could pass the limit.
-- Numbers go straight to redis.call, since tostring() makes 1.2e+14 of them. Money is handed on as the text it came as.

local SLOT_MS, LIVE_SLOTS = 5000, 13

local function now_ms(given)
  if given ~= '0' then return tonumber(given) end -- tests have a clock of their own
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function day_of(at_ms)
  return math.floor(tonumber(at_ms) / 86400000)
end

local function slot_of(at_ms)
  return math.floor(at_ms / SLOT_MS)
end

local function is_live(slot, now)
  return slot > slot_of(now) - LIVE_SLOTS
end

local function read_meter(key, now)
  local meter = {key = key, now = now, sums = {}, slots = {}, dead = {}, total = 0}
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local slot, sum = tonumber(flat[i]), tonumber(flat[i + 1])
    if is_live(slot, now) then
      meter.sums[slot] = sum
      meter.slots[#meter.slots + 1] = slot
      meter.total = meter.total + sum
    else
      meter.dead[#meter.dead + 1] = flat[i]
    end
  end
  table.sort(meter.slots)
  return meter
end

local function leaves_in_ms(meter, slot)
  return (slot + LIVE_SLOTS) * SLOT_MS - meter.now
end

-- Milliseconds until `excess` of what is counted has left.
local function wait_ms(meter, excess)
  for _, slot in ipairs(meter.slots) do
    excess = excess - meter.sums[slot]
    if excess <= 0 then return leaves_in_ms(meter, slot) end
  end
  return LIVE_SLOTS * SLOT_MS
end

local function add_to(key, slot, amount)
  redis.call('HINCRBY', key, slot, amount)
  redis.call('PEXPIRE', key, (LIVE_SLOTS + 1) * SLOT_MS)
end

local function add(meter, amount)
  for _, slot in ipairs(meter.dead) do redis.call('HDEL', meter.key, slot) end
  add_to(meter.key, slot_of(meter.now), amount)
end

-- Into the slot that it was taken from, while that counts; later it would be credit for nothing.
local function refund(key, slot, amount, now)
  if not is_live(slot, now) then return end
  local back = math.min(amount, tonumber(redis.call('HGET', key, slot) or 0))
  if back > 0 then redis.call('HINCRBY', key, slot, -back) end
end
