-- Before every script, too: the marker of a bill, `done`. It has its word (`final`, or `swept` where an owner that lives
-- may correct it), its bar, who booked it, when that was let in, which sums it is in, and its amounts. Before there is a
-- bill it may be a bar alone, `barred`.
-- A bar is the last attempt that is over: none up to it is let in any more, though its admission come late.

-- Word, bar, owner, admitted ms, sums, amounts; the word is nil where there is no bill, and the bar '0' where there is none.
local function read_done(key)
  local done = redis.call('GET', key) or ''
  local word, bar, owner, admitted_ms, sums, amounts = string.match(done, '^(%a+):(%d):(%w+):(%d+):(%x+):(.*)$')
  return word, bar or string.match(done, '^barred:(%d)$') or '0', owner, admitted_ms, sums, amounts
end

local function write_done(word, bar, owner, admitted_ms, sums, amounts)
  return table.concat({word, bar, owner, admitted_ms, sums, amounts}, ':')
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
