-- Before every script, too: what keys have spent. A key that never paid for anything leaves no sums behind: with keys
-- made and revoked in turn there would be no end of them.

-- Of day, month and total, from KEYS[first] on.
local function drop_empty(first)
  for i = first, first + 2 do
    local spend = redis.call('HMGET', KEYS[i], 'held', 'settled')
    if (spend[1] or '0') == '0' and (spend[2] or '0') == '0' then redis.call('DEL', KEYS[i]) end
  end
end
