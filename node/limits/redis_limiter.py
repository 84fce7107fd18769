"""The limiter in Redis: one script a call, so that any number of nodes share one truth.

Decides arguments and what answers mean. What is allowed and booked is decided in `lua/`; clocks are Redis's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node.limits import limiter as port
from node.limits import names
from node.limits.facts import encode_subject, running_record
from node.limits.limiter import Hold, Needs, Progress, SpendCap, Subject
from node.limits.store import Argument, Delivery, Script, Store, load_script
from shared.request_log import KEEP_S, RequestRecord, oldest_id
from shared.usage import field_prefix

LEASE_MS = 30_000
DONE_MS = 40 * names.DAY_MS
"""How long a bill is remembered as booked: longer than a spool may wait."""
FREE_DONE_MS = 600_000
"""The same of a free bill, which is dropped where it comes later, so that those can't fill Redis: longer than a node
token lives, and than an admission that nobody waits for any more can be on its way."""
BOOKS_S = 400 * 86_400
"""How long days and months of usage and spending are kept; the ledger is kept for good."""
MOST_FREE = 1000
"""Records of an organization's requests that cost nothing, refused ones among them: the newest are kept."""
ANNOUNCE_EVERY_S = 60
_METERS: tuple[port.LimitName, ...] = ("requests_per_minute", "tokens_per_minute", "image_bytes_per_minute")
_ADMIT, _ADJUST, _ANNOUNCE, _CHARGE, _RENEW, _SETTLE, _RELEASE, _REFUSE = map(
    load_script, ("admit", "adjust", "announce", "charge", "renew", "settle", "release", "refuse")
)


def system_ms() -> int:
    """Unix time of this machine."""
    return time.time_ns() // 1_000_000


class RedisLimiter:
    """`Limiter` on a store."""

    def __init__(self, store: Store, *, lease_ms: int = LEASE_MS, clock_ms: Callable[[], int] | None = None) -> None:
        """`clock_ms` takes the place of Redis's clock, for tests."""
        self.store = store
        self._lease_ms = lease_ms
        self._clock_ms = clock_ms
        self._ahead_ms = 0  # of Redis's clock over this machine's, as far as it mattered
        self._announced_s: dict[str, float] = {}

    async def admit(self, subject: Subject, needs: Needs, attempt: int = 1) -> port.Admission:
        """One round trip; two where the clocks disagree on the day. An owner's name begins with its attempt."""
        if not await self._announce(subject.org):
            return port.Unavailable()
        sent, delivery = Hold(subject, self._near_ms(), f"{attempt}{secrets.token_hex(8)}"), Delivery()
        answer = await self._admit_on(sent, needs, delivery)
        match answer:
            case ["day", now_ms]:
                self._ahead_ms = int(now_ms) - system_ms()
                sent, delivery = replace(sent, admitted_ms=int(now_ms)), Delivery()
                answer = await self._admit_on(sent, needs, delivery)
            case _:
                pass  # the answer that is read below
        match answer:
            case ["admitted", admitted_ms, remaining, reset_ms]:
                hold = replace(sent, admitted_ms=int(admitted_ms))
                if remaining == "":
                    return port.Admitted(hold)
                limit = subject.limits.requests_per_minute
                return port.Admitted(hold, limit, int(remaining), _whole_s(reset_ms))
            case ["day", _]:  # midnight came between
                return port.Unavailable()
            case None if delivery.may_have_acted:
                return port.Unanswered(sent)
            case ["concurrency", running]:
                return _too_many(subject.limits.concurrent_requests or 0, int(running))
            case ["rate", meter, remaining, wait_ms]:
                return _rate_limited(subject, _METERS[int(meter)], remaining, wait_ms)
            case ["never", meter]:
                return _never_fits(subject, _METERS[int(meter)], _needs_of(needs)[int(meter)])
            case _:
                return _spend_or_settled(answer, subject.cap, needs)

    async def _admit_on(self, sent: Hold, needs: Needs, delivery: Delivery) -> list[Any] | None:
        """On the day of what is sent, if Redis has the same."""
        subject, near_ms = sent.subject, sent.admitted_ms
        limits = subject.limits
        per_minute = (limits.requests_per_minute, limits.tokens_per_minute, limits.image_bytes_per_minute)
        meters = [each for pair in zip(_needs_of(needs), map(_limit, per_minute), strict=True) for each in pair]
        arguments: list[Argument] = [
            self._now(),
            near_ms // names.DAY_MS,
            subject.request_id,
            self._lease_ms,
            _limit(limits.concurrent_requests),
            needs.cost_nano_usd,
            *_cap(subject.cap, first_key=4),
            *meters,
            encode_subject(subject),
            running_record(subject).encode(),
            KEEP_S * 1000,
            oldest_id(near_ms),
            BOOKS_S,
            sent.owner,
            field_prefix(subject.key_id, subject.model),
            DONE_MS,
        ]
        return await self.store.run(_ADMIT, names.admit_keys(subject, near_ms), arguments, delivery)

    async def adjust(self, hold: Hold, needs: Needs) -> port.Adjustment:
        """Tokens and cost; image bytes have a call of their own."""
        subject = hold.subject
        limit = subject.limits.tokens_per_minute
        cap = _cap(subject.cap, first_key=3)
        arguments = [self._now(), needs.tokens, _limit(limit), needs.cost_nano_usd, *cap, hold.owner]
        answer = await self._run(_ADJUST, names.adjust_keys(hold), arguments)
        match answer:
            case ["adjusted"]:
                return port.Adjusted()
            case ["lost"]:
                return port.Lost()
            case ["rate", remaining, wait_ms]:
                return _rate_limited(subject, "tokens_per_minute", remaining, wait_ms)
            case ["never"]:
                return _never_fits(subject, "tokens_per_minute", needs.tokens)
            case _:
                return _spend_or_settled(answer, subject.cap, needs)

    async def charge_images(self, hold: Hold, total_bytes: int) -> port.Charge:
        """The request's sum so far."""
        limit = hold.subject.limits.image_bytes_per_minute
        arguments = [self._now(), total_bytes, _limit(limit), hold.owner]
        answer = await self._run(_CHARGE, names.charge_keys(hold), arguments)
        match answer:
            case ["charged"]:
                return port.Charged()
            case ["rate", remaining, wait_ms]:
                return _rate_limited(hold.subject, "image_bytes_per_minute", remaining, wait_ms)
            case ["never"]:
                return _never_fits(hold.subject, "image_bytes_per_minute", total_bytes)
            case None:
                return port.Unavailable()
            case _:
                raise _unknown(answer)

    async def renew(self, hold: Hold, progress: Progress) -> port.Renewal:
        """For another lease."""
        await self._announce(hold.subject.org)  # a store that was emptied forgot this too
        arguments: list[Argument] = [
            self._now(),
            hold.subject.request_id,
            self._lease_ms,
            hold.admitted_ms,
            encode_subject(hold.subject),
            int(progress.has_prefilled),
            progress.input_tokens,
            progress.output_tokens,
            progress.cached_tokens,
            hold.owner,
        ]
        answer = await self._run(_RENEW, names.renew_keys(hold), arguments)
        match answer:
            case ["renewed"]:
                return port.Renewed()
            case ["settled"]:
                return port.AlreadySettled()
            case None:
                return port.Unavailable()
            case _:
                raise _unknown(answer)

    async def settle(self, settlement: port.Settlement) -> port.Booking:
        """By the owner or a sweeper."""
        hold = settlement.hold
        answer = await self._run(_SETTLE, names.settle_keys(hold), self._bill(settlement))
        match answer:
            case ["booked"]:
                return port.Settled()
            case ["ghost"]:
                return port.Settled(was_known=False)
            case ["amended"]:
                return port.Amended()
            case ["settled"]:
                return port.AlreadySettled()
            case ["day", admitted_ms]:  # an earlier attempt was let in on another day, and this one took it over
                admitted = replace(hold, admitted_ms=int(admitted_ms))
                return await self.settle(replace(settlement, hold=admitted))
            case ["alive"]:
                return port.StillAlive()
            case ["old"]:
                return port.TooOld()
            case None:
                return port.Unavailable()
            case _:
                raise _unknown(answer)

    def _bill(self, settlement: port.Settlement) -> list[Argument]:
        hold, record, metered = settlement.hold, settlement.record, settlement.metered_tokens
        subject = hold.subject
        return [
            self._now(),
            subject.request_id,
            _voice(settlement),
            hold.admitted_ms,
            record.input_tokens + record.output_tokens if metered is None else metered,
            int(subject.limits.requests_per_minute is not None),
            int(subject.limits.tokens_per_minute is not None),
            DONE_MS,
            record.encode(),
            KEEP_S * 1000,
            field_prefix(subject.key_id, subject.model),
            BOOKS_S,
            record.input_tokens,
            record.output_tokens,
            record.cached_tokens,
            record.image_bytes,
            record.cost_nano_usd,
            record.outcome,
            hold.owner,
            FREE_DONE_MS,
            MOST_FREE,
            *("key", subject.key_id, "project", subject.project, "model", subject.model, "node", subject.node),
            *("price", subject.price.version, "admitted_ms", hold.admitted_ms),
        ]

    async def release(self, hold: Hold) -> None:
        """By its owner."""
        await self._run(_RELEASE, names.release_keys(hold), [self._now(), hold.subject.request_id, hold.owner])

    async def log_refusal(self, org: str, record: RequestRecord) -> None:
        """Among the newest `MOST_FREE` of the organization."""
        arguments: list[Argument] = [record.id, record.encode(), MOST_FREE, KEEP_S * 1000]
        await self.store.run(_REFUSE, names.refuse_keys(org, record.id), arguments)

    async def _announce(self, org: str) -> bool:
        """Tell sweepers of an organization, before it can have a reservation; false if Redis doesn't answer."""
        now_s = time.monotonic()
        if now_s - self._announced_s.get(org, -ANNOUNCE_EVERY_S) < ANNOUNCE_EVERY_S:
            return True
        if await self._run(_ANNOUNCE, [names.ORGS], [self._now(), org]) is None:
            return False
        if len(self._announced_s) > 10_000:
            self._announced_s.clear()
        self._announced_s[org] = now_s
        return True

    async def _run(self, script: Script, keys: list[str], arguments: list[Argument]) -> list[Any] | None:
        return await self.store.run(script, keys, arguments)

    def _now(self) -> int:
        """For the scripts: 0 is Redis's own clock."""
        return 0 if self._clock_ms is None else self._clock_ms()

    def _near_ms(self) -> int:
        """Redis's clock as far as it is known here; `admit` checks the day of it."""
        return system_ms() + self._ahead_ms if self._clock_ms is None else self._clock_ms()


def _voice(settlement: port.Settlement) -> str:
    """Who speaks, for `settle.lua`."""
    if not settlement.is_last_word:
        return "sweep"
    return "owner" if settlement.is_certain else "void"


def _needs_of(needs: Needs) -> tuple[int, int, int]:
    """By meter."""
    return (1, needs.tokens, needs.image_bytes)


def _limit(limit: int | None) -> Argument:
    return "" if limit is None else limit


def _cap(cap: SpendCap | None, *, first_key: int) -> list[Argument]:
    """The cap, and which of the script's keys counts against it."""
    if cap is None:
        return ["", ""]
    return [cap.nano_usd, first_key + ("day", "month", "total").index(cap.period)]


def _whole_s(wait_ms: int | str) -> int:
    """Never too early, at least 1."""
    return max(1, -(-int(wait_ms) // 1000))


def _limit_of(subject: Subject, name: port.LimitName) -> int:
    limit: int | None = getattr(subject.limits, name)
    return limit or 0


def _rate_limited(subject: Subject, name: port.LimitName, remaining: int, wait_ms: int) -> port.RateLimited:
    wait_s = _whole_s(wait_ms)
    return port.RateLimited(name, _limit_of(subject, name), int(remaining), wait_s, wait_s)


def _too_many(limit: int, running: int) -> port.ConcurrencyLimited | port.NeverFits:
    return port.ConcurrencyLimited(limit, running) if limit else port.NeverFits("concurrent_requests", 0, 1)


def _never_fits(subject: Subject, name: port.LimitName, needed: int) -> port.NeverFits:
    return port.NeverFits(name, _limit_of(subject, name), needed)


def _spend_or_settled(
    answer: list[Any] | None, cap: SpendCap | None, needs: Needs
) -> port.CapReached | port.AlreadySettled | port.Unavailable:
    """What `admit` and `adjust` have in common."""
    match answer:
        case ["spend", used] if cap is not None:
            return port.CapReached(cap, int(used), needs.cost_nano_usd)
        case ["settled"]:
            return port.AlreadySettled()
        case None:
            return port.Unavailable()
        case _:
            raise _unknown(answer)


def _unknown(answer: object) -> RuntimeError:
    return RuntimeError(f"a script of ours answered {answer!r}")
