-- Book remote image bytes that have arrived. The request's sum is passed, so that a repeated call books nothing more.
-- KEYS: 1 reservation, 2 meter of images
-- ARGV: 1 now, 2 sum so far, 3 limit, 4 owner

local booked, owner = unpack(redis.call('HMGET', KEYS[1], 'images', 'owner'))
if not booked then return {'charged'} end -- lost: there is nothing to tell new bytes from old ones by
if owner ~= ARGV[4] then return {'charged'} end -- another attempt's now
local sum, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local more = sum - tonumber(booked)
if more <= 0 then return {'charged'} end
if not limit then
  redis.call('HSET', KEYS[1], 'images', sum)
  return {'charged'}
end

local meter = read_meter(KEYS[2], now_ms(ARGV[1]))
local taken = math.min(more, math.max(0, limit - meter.total))
if taken > 0 then
  add(meter, taken)
  redis.call('HSET', KEYS[1], 'images', tonumber(booked) + taken)
end
if sum > limit then return {'never'} end
if taken < more then
  -- Whoever comes again needs the whole sum again.
  meter = read_meter(KEYS[2], meter.now)
  return {'rate', math.max(0, limit - meter.total), wait_ms(meter, meter.total + sum - limit)}
end
return {'charged'}
