"""All that knows callers, put together once: for the process, and for tests that run it whole.

Decides which part gets which. Must not decide anything about callers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from redis.asyncio import Redis

from edge.api.auth import AuthRoutes
from edge.api.device import DeviceRoutes
from edge.api.gate import Gate
from edge.api.keys import KeyRoutes
from edge.api.requests import RequestRoutes
from edge.api.usage import UsageRoutes
from edge.auth.accounts import RedisAccounts
from edge.auth.authenticate import Authenticator
from edge.auth.cache import RecordCache
from edge.auth.device import LIFETIME_S, MAX_WRONG_CODES, RedisDevices
from edge.auth.failures import AddressLimit, FailureLimit
from edge.auth.hosts import Hosts
from edge.auth.invalidations import Invalidations
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.login import Login
from edge.auth.passwords import Passwords
from edge.auth.sessions import RedisSessions, SessionRecord
from edge.settings import EdgeSection
from shared.request_log import RequestLog
from shared.usage import UsageReader

UNKNOWN_WINDOW_S = 60
LOOKUP_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class IdentityParts:
    """The parts that others ask."""

    authenticator: Authenticator
    invalidations: Invalidations
    keys: KeyRoutes
    auth: AuthRoutes
    device: DeviceRoutes
    requests: RequestRoutes
    usage: UsageRoutes
    key_cache: RecordCache[KeyRecord]
    session_cache: RecordCache[SessionRecord]
    hosts: Hosts
    gate: Gate


@contextlib.asynccontextmanager
async def opened_identity(
    redis: Redis,
    lookups: Redis,
    settings: EdgeSection,
    clock: Callable[[], float],
    wall_clock: Callable[[], float],
) -> AsyncIterator[IdentityParts]:
    """Follow the invalidations while the body runs.

    Args:
        lookups: a client of the same Redis with `LOOKUP_CONNECTIONS` of its own, for keys and sessions alone: no
            reading of lists keeps a request waiting that only has to be known.
        clock: gives monotonic seconds. wall_clock: gives Unix seconds.
    """
    store, sessions, accounts = RedisKeyStore(redis), RedisSessions(redis, wall_clock), RedisAccounts(redis)
    key_cache = RecordCache(RedisKeyStore(lookups).fetch_key, clock)
    session_cache = RecordCache(RedisSessions(lookups, wall_clock).fetch_session, clock)
    hosts = Hosts(settings.list_dashboard_hosts())
    proxies = settings.trusted_proxies
    unknown = AddressLimit(settings.unknown_credentials_per_address, UNKNOWN_WINDOW_S, clock)
    authenticator = Authenticator(key_cache, session_cache, hosts, unknown, wall_clock, trusted_proxies=proxies)
    per_address = AddressLimit(settings.login_failures_per_address, settings.login_window_s, clock)
    per_account = FailureLimit(settings.login_failures_per_account, settings.login_window_s, clock)
    passwords = Passwords()
    login = Login(accounts, sessions, passwords, per_address, per_account)
    keys = KeyRoutes(authenticator, store, key_cache, wall_clock)
    auth = AuthRoutes(
        authenticator, login, accounts, sessions, session_cache, keys, hosts, wall_clock, trusted_proxies=proxies
    )
    device = DeviceRoutes(
        authenticator,
        RedisDevices(redis),
        accounts,
        store,
        key_cache,
        hosts,
        AddressLimit(settings.device_logins_per_address, LIFETIME_S, clock),
        FailureLimit(MAX_WRONG_CODES, LIFETIME_S, clock),
        wall_clock,
        trusted_proxies=proxies,
    )
    requests = RequestRoutes(authenticator, RequestLog(redis, wall_clock))
    usage = UsageRoutes(authenticator, UsageReader(redis), wall_clock)
    invalidations = Invalidations(redis, key_cache, session_cache)
    gate = Gate(
        authenticator,
        clock,
        per_minute=settings.management_per_minute,
        burst=settings.management_burst,
        trusted_proxies=proxies,
    )
    try:
        async with invalidations.following():
            parts = (authenticator, invalidations, keys, auth, device, requests, usage, key_cache, session_cache)
            yield IdentityParts(*parts, hosts, gate)
    finally:
        passwords.close()
