-- Keep a refused request in the log, among the newest that cost nothing.
-- KEYS: 1 record of an admitted request, 2 done, 3 ids of free ones, 4 records of free ones
-- ARGV: 1 id, 2 record, 3 most, 4 ms

-- A retry of what was let in: that has its entry, while it runs and once it was settled.
if redis.call('EXISTS', KEYS[1]) == 1 then return {} end
if redis.call('EXISTS', KEYS[2]) == 1 and redis.call('HGET', KEYS[4], ARGV[1]) then return {} end
keep_newest(KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return {}
