-- Book a bill and end its reservation, once. The `done` marker decides, not the reservation: a bill that comes after
-- the reservation was lost is booked all the same.
-- KEYS: 1 done, 2 reservation, 3 leases, 4-6 spend of day, month, total, 7-8 meters of requests, tokens, 9 ledger,
--       10 usage, 11 record, 12 record ids, 13 ids of free ones, 14 records of free ones
-- ARGV: 1 now, 2 id, 3 'owner', 'sweep' or 'void', 4 admitted ms, 5 used tokens, 6-7 whether requests, tokens have
--       limits, 8 done ms, 9 record, 10 record ms, 11 prefix of usage fields, 12 books s,
--       13-17 input, output, cached, image bytes, cost, 18 outcome, 19 owner, 20 done ms of a free bill,
--       21 most free records, 22.. names and values of the ledger entry
-- 'void' is an owner's that heard no answer to its admission: only where there is a reservation is there a bill.
-- Amounts stay text: no arithmetic is done on money here.

local COUNTED = {'input_tokens', 'output_tokens', 'cached_tokens', 'image_bytes', 'cost_nano_usd'}

-- The ledger is kept for good and a record for 30 days, so only what was paid for may write them.
local function is_free(amounts)
  return amounts[1] == '0' and amounts[2] == '0' and amounts[5] == '0'
end

local function book(amounts, sign, outcome)
  local entry = {'XADD', KEYS[9], '*', 'request', ARGV[2], 'outcome', outcome}
  for i = 22, #ARGV do entry[#entry + 1] = ARGV[i] end
  if amounts[6] == '1' then redis.call('HINCRBY', KEYS[10], ARGV[11] .. 'requests', sign .. '1') end
  for i, name in ipairs(COUNTED) do
    local amount = amounts[i]
    if amount ~= '0' then
      amount = sign .. amount
      redis.call('HINCRBY', KEYS[10], ARGV[11] .. name, amount)
    end
    entry[#entry + 1] = name
    entry[#entry + 1] = amount
  end
  if amounts[5] ~= '0' then
    for i = 4, 6 do redis.call('HINCRBY', KEYS[i], 'settled', sign .. amounts[5]) end
  end
  if not is_free(amounts) then redis.call(unpack(entry)) end
end

local now, id, used, owner = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[5]), ARGV[19]
local is_sweep = ARGV[3] == 'sweep'
local stored = redis.call('HMGET', KEYS[2], 'held', 'tokens', 'slot', 'slot_tokens', 'owner', 'admitted_ms')
local billed, bar_before, biller, billed_ms, sums, amounts_before = read_done(KEYS[1])
local bar = later_of(owner, bar_before)
local is_others = (stored[5] or owner) ~= owner
if ARGV[3] == 'void' and (is_others or not stored[1]) and biller ~= owner then -- the admission may come yet
  if billed then
    redis.call('SET', KEYS[1], write_done(billed, bar, biller, billed_ms, sums, amounts_before), 'KEEPTTL')
  else
    redis.call('SET', KEYS[1], 'barred:' .. bar, 'PX', ARGV[20])
  end
  return {(billed or is_others or bar == bar_before) and 'settled' or 'ghost'}
end
if is_others or (is_sweep and not stored[1]) then return {'settled'} end -- another attempt's to settle, or back by now
-- The names of a void bill are of the day on which it asked. Its own reservation may have been swept since.
local admitted_ms = stored[6] or billed_ms
if ARGV[3] == 'void' and day_of(admitted_ms) ~= day_of(ARGV[4]) then return {'day', admitted_ms} end
if billed then
  -- What was booked gives way to its owner, where that was taken for dead, and to a later attempt that was let in.
  local is_own = biller == owner and billed == 'swept' and not is_sweep
  local is_next = is_later(owner, biller) and day_of(billed_ms) == day_of(ARGV[4])
  if not (is_own or is_next) then return {'settled'} end
end
local amounts = {ARGV[13], ARGV[14], ARGV[15], ARGV[16], ARGV[17]}
local free = is_free(amounts)
amounts[6] = ARGV[18] == 'refused' and free and '0' or '1' -- whether it counts as a request
-- A free bill may be forgotten early where no other attempt can have a bill that waits in a spool.
local is_only = not is_sweep and not billed and not is_later(owner, '1')
local done_ms = free and is_only and ARGV[20] or ARGV[8]
-- The marker of a bill this old may have expired; a reservation that is still there was never billed.
if not billed and not stored[1] and now - tonumber(ARGV[4]) > tonumber(done_ms) then
  return {free and 'settled' or 'old'}
end
if is_sweep then
  local ends = redis.call('ZSCORE', KEYS[3], id)
  if ends and tonumber(ends) >= now then return {'alive'} end
end

local word = is_sweep and 'swept' or 'final'
local marker = write_done(word, bar, owner, ARGV[4], sums_of(ARGV[11]), table.concat(amounts, ' '))
redis.call('SET', KEYS[1], marker, 'PX', done_ms)

local answer = 'booked'
if stored[1] then
  if stored[1] ~= '0' then
    for i = 4, 6 do redis.call('HINCRBY', KEYS[i], 'held', '-' .. stored[1]) end
  end
  local slot, unused = tonumber(stored[3]), tonumber(stored[2]) - used
  if slot and unused > 0 then
    refund(KEYS[8], slot, math.min(unused, tonumber(stored[4])), now)
  elseif slot and unused < 0 then
    add_to(KEYS[8], slot_of(now), -unused)
  end
  redis.call('DEL', KEYS[2])
elseif not billed then
  answer = 'ghost'
  -- What it was admitted for was lost with its reservation, or has left the window since.
  local slot = slot_of(tonumber(ARGV[4]))
  if is_live(slot, now) then
    if ARGV[6] == '1' then add_to(KEYS[7], slot, 1) end
    if ARGV[7] == '1' and used > 0 then add_to(KEYS[8], slot, used) end
  end
end
redis.call('ZREM', KEYS[3], id)

if billed then
  -- The entry that was wrong is reversed, so that the sum is right.
  answer = 'amended'
  local before = {}
  for amount in string.gmatch(amounts_before, '%d+') do before[#before + 1] = amount end
  book(before, '-', 'reversed')
  local more = used - tonumber(before[1]) - tonumber(before[2])
  if ARGV[7] == '1' and more > 0 and not stored[1] then add_to(KEYS[8], slot_of(now), more) end
end
book(amounts, '', ARGV[18])
if amounts[5] == '0' then drop_empty(4) end
for _, key in ipairs({KEYS[4], KEYS[5], KEYS[10]}) do redis.call('EXPIRE', key, ARGV[12]) end
if free then
  redis.call('DEL', KEYS[11])
  redis.call('ZREM', KEYS[12], id)
  keep_newest(KEYS[13], KEYS[14], id, ARGV[9], ARGV[21], ARGV[10])
else
  redis.call('SET', KEYS[11], ARGV[9], 'PX', ARGV[10])
  redis.call('ZADD', KEYS[12], 0, id)
  if billed then drop_record(KEYS[13], KEYS[14], id) end
end
return {answer}
