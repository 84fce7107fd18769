-- Drop organizations at rest from the sweepers' list. One that was announced since it was looked at stays.
-- KEYS: 1 organizations
-- ARGV: 1 the second before which one counts as at rest, 2... organizations

for i = 2, #ARGV do
  local active_s = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if active_s and tonumber(active_s) < tonumber(ARGV[1]) then redis.call('ZREM', KEYS[1], ARGV[i]) end
end
return {}
