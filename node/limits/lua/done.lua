-- Before every script, too: the marker of a bill, `done`. It has its word (`final`, or `swept` where an owner that lives
-- may correct it), who booked it, when that was let in, which sums it is in, and its amounts. A bare `final` is of a
-- request that never was.

local function read_done(done)
  return string.match(done or '', '^(%a+):(%w+):(%d+):(%x+):(.*)$')
end

local function write_done(word, owner, admitted_ms, sums, amounts)
  return table.concat({word, owner, admitted_ms, sums, amounts}, ':')
end

-- Of the names of key and model, short.
local function sums_of(prefix)
  return string.sub(redis.sha1hex(prefix), 1, 8)
end

-- Whether the first of two owners is of a later attempt of the edge's: their names begin with it.
local function is_later(owner, other)
  return string.sub(owner, 1, 1) > string.sub(other, 1, 1)
end
