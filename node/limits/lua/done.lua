-- Before every script, too: the marker of a bill, `done`. It has its word (`final`, or `swept` where an owner that lives
-- may correct it), who booked it, its bar, when that was let in, which sums it is in, and its amounts. A bare `final` is
-- of a request that never was.
-- A bar is the last attempt that is over: none up to it is let in any more, though its admission come late.

local function read_done(done)
  return string.match(done or '', '^(%a+):(%w+):(%d):(%d+):(%x+):(.*)$')
end

local function write_done(word, owner, bar, admitted_ms, sums, amounts)
  return table.concat({word, owner, bar, admitted_ms, sums, amounts}, ':')
end

-- Of the names of key and model, short.
local function sums_of(prefix)
  return string.sub(redis.sha1hex(prefix), 1, 8)
end

-- Which attempt of the edge's an owner is of: its name begins with it.
local function attempt_of(owner)
  return string.sub(owner, 1, 1)
end

-- Whether the first of two owners, or of an owner and a bar, is of a later attempt.
local function is_later(owner, other)
  return attempt_of(owner) > attempt_of(other)
end

local function later_of(one, other)
  return is_later(one, other) and attempt_of(one) or attempt_of(other)
end
