-- Before every script, too: the log of what cost nothing. Only so many of an organization are kept, so that neither a
-- flood of refusals nor work that is free can fill the store.

local function drop_record(ids, records, id)
  redis.call('ZREM', ids, id)
  redis.call('HDEL', records, id)
end

local function keep_newest(ids, records, id, record, most, ms)
  redis.call('ZADD', ids, 0, id)
  redis.call('HSET', records, id, record)
  local over = redis.call('ZCARD', ids) - tonumber(most)
  if over > 0 then
    local oldest = redis.call('ZPOPMIN', ids, over)
    for i = 1, #oldest, 2 do redis.call('HDEL', records, oldest[i]) end
  end
  redis.call('PEXPIRE', ids, ms)
  redis.call('PEXPIRE', records, ms)
end
