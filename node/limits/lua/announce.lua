-- Note that an organization is active, by the clock of Redis: those of nodes may be apart.
-- KEYS: 1 organizations
-- ARGV: 1 now, 2 organization

redis.call('ZADD', KEYS[1], math.floor(now_ms(ARGV[1]) / 1000), ARGV[2])
return {}
