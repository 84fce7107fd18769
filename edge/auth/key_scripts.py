"""What happens to stored keys in one step of Redis: one is made, some end, some are forgotten.

Decides that no bound is passed by two who ask at once, and that whatever ends is told of in the same step. Must not
know what a key may do, nor what its fields mean beyond those that say where it is listed.
"""

from __future__ import annotations

# Each is listed twice: by time for those who read, and by its end for those who need room. What ends first is
# forgotten first: of an organization's keys only dead ones, of a user's tokens the oldest too.
CREATE = """
local keys, ids, orgs = ARGV[7], ARGV[8], ARGV[9]
local function forget(digest)
  local name = keys .. digest
  local found = redis.call('HMGET', name, 'id', 'org', 'created_at', 'parent')
  redis.call('ZREM', KEYS[4], digest)
  redis.call('DEL', name, name .. ':children')
  redis.call('PUBLISH', ARGV[6], digest)
  if not found[1] then return end
  redis.call('DEL', ids .. found[1])
  local listed = string.format('%012d', found[3]) .. '-' .. found[1] .. '-' .. digest
  redis.call('ZREM', orgs .. found[2] .. ':key-index', listed)
  if found[4] and found[4] ~= '' then redis.call('SREM', keys .. found[4] .. ':children', digest) end
end
local most = tonumber(ARGV[4])
if most > 0 and redis.call('ZCARD', KEYS[4]) >= most then
  local going
  if ARGV[5] == 'oldest' then going = redis.call('ZRANGE', KEYS[4], 0, -most)
  else going = redis.call('ZRANGE', KEYS[4], '-inf', redis.call('TIME')[1], 'BYSCORE', 'LIMIT', 0, 100) end
  if not going[1] then return 0 end
  for _, digest in ipairs(going) do forget(digest) end
end
redis.call('HSET', KEYS[1], unpack(ARGV, 11))
redis.call('SET', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[2])
redis.call('ZADD', KEYS[4], ARGV[3], ARGV[1])
if ARGV[10] ~= '' then redis.call('SADD', keys .. ARGV[10] .. ':children', ARGV[1]) end
redis.call('PUBLISH', ARGV[6], ARGV[1])
return 1
"""
# A key's end is the end of all that hang on it: they are found, marked and published in the same step, so that none
# which is being made can slip through.
REVOKE = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status or status == 'revoked' then return {} end
local now, ended, at = redis.call('TIME')[1], {ARGV[1]}, 1
while ended[at] do
  local name = ARGV[3] .. ended[at]
  local found = redis.call('HMGET', name, 'kind', 'org', 'made_by')
  if found[1] then
    redis.call('HSET', name, 'status', 'revoked')
    local ends = found[1] == 'pat' and ARGV[5] .. (found[3] or '') .. ':tokens' or ARGV[4] .. found[2] .. ':key-ends'
    redis.call('ZADD', ends, 'XX', 'LT', now, ended[at])
  end
  redis.call('PUBLISH', ARGV[2], ended[at])
  for _, child in ipairs(redis.call('SMEMBERS', name .. ':children')) do ended[#ended + 1] = child end
  at = at + 1
end
return ended
"""
