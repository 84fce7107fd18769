"""How a person gets a session: at log-in, in another organization, with another password.

Decides the order of these steps, and that a refusal tells nothing of who exists: an unknown address, a wrong password
and a disabled user take the same time and share one sentence. Must not know cookies or HTTP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from edge.auth.accounts import Membership, RedisAccounts, User, canonical_email
from edge.auth.authenticate import SessionIdentity
from edge.auth.credentials import unauthorized
from edge.auth.failures import AddressLimit, FailureLimit, Limit, begin_all
from edge.auth.passwords import Passwords
from edge.auth.sessions import Place, RedisSessions, Replaced, SessionRecord, digest_of
from edge.auth.store import StoreUnavailable, answering
from shared.errors import FORBIDDEN, RATE_LIMITED, ApiError


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session, and the value that only its cookie ever holds."""

    value: str
    record: SessionRecord

    def __repr__(self) -> str:
        return f"Opened({self.record.id})"


class Login:
    """Opens sessions for those who can show a password, or a session."""

    def __init__(
        self,
        accounts: RedisAccounts,
        sessions: RedisSessions,
        passwords: Passwords,
        per_address: AddressLimit,
        per_account: FailureLimit,
    ) -> None:
        """Failures count twice: for the address that they come from, and for the account that they are about.

        Those of somebody who is logged in count for his log-in alone, as an account of its own: others who fail keep
        nobody from changing his password, nor does who has another session of his.
        """
        self._accounts = accounts
        self._sessions = sessions
        self._passwords = passwords
        self._per_address = per_address
        self._per_account = per_account

    async def log_in(self, email: str, password: str, wanted: Place, address: str, *, replaced: str | None) -> Opened:
        """A session where `wanted`, or in the first of the user's organizations.

        Args:
            replaced: the digest of the session that the browser had, which ends here if it exists.

        Raises:
            ApiError: `UNAUTHORIZED`, `RATE_LIMITED`, `FORBIDDEN` (no such organization for this user), or
                `NODE_UNAVAILABLE`.
            StoreUnavailable: the store does not answer.
        """
        account = hashlib.sha256(canonical_email(email).encode()).hexdigest()
        user = await self._check(email, password, ((self._per_address, address), (self._per_account, account)))
        place = await self._choose_place(user.id, wanted)
        return await self._open(user, place, None if replaced is None else Replaced(replaced, must_live=False))

    async def switch(self, identity: SessionIdentity, wanted: Place) -> Opened:
        """The same session under a new value in another organization; it ends when it would have ended.

        Raises:
            ApiError: `FORBIDDEN` (no such organization for this user), `UNAUTHORIZED` (the session is over).
            StoreUnavailable: the store does not answer.
        """
        user = await self._user_of(identity)
        place = await self._choose_place(user.id, wanted)
        return await self._open(user, place, Replaced(identity.digest, must_live=True), identity.record.ends_at_s)

    async def change_password(self, identity: SessionIdentity, current: str, new: str) -> Opened:
        """A new password, and the one session that goes on under it; CLI tokens end like the other sessions.

        Raises:
            ApiError: `UNAUTHORIZED`, `RATE_LIMITED`, or `NODE_UNAVAILABLE`.
            StoreUnavailable: the store does not answer.
        """
        record = identity.record
        log_in = f"log-in {record.user} {record.ends_at_s}"  # in every organization, unlike the session's own id
        user = await self._check((await self._user_of(identity)).email, current, ((self._per_account, log_in),))
        hashed = await self._passwords.hash(new)
        async with answering():
            is_changed = await self._accounts.set_password(user.id, hashed, user.password_version)
        if not is_changed:
            raise _refused()
        place = Place(identity.record.org, identity.record.project)
        return await self._open(await self._user_of(identity), place, None)

    async def _check(self, email: str, password: str, tries: Sequence[tuple[Limit, str]]) -> User:
        """The user who has this address and password, and may log in.

        A try counts before anybody looks at it, and no more where nobody could. Whoever has to wait costs no lookup.
        """
        if (wait_s := begin_all(tries)) is not None:
            raise ApiError(RATE_LIMITED, f"too many failed log-ins; retry in {wait_s} s", retry_after_s=wait_s)
        try:
            async with answering():
                user = await self._accounts.find_user(email)
            is_right = await self._passwords.verify(password, None if user is None else user.password)
        except (ApiError, StoreUnavailable):
            _forgive(tries)
            raise
        if not is_right or user is None or user.status != "active":
            raise _refused()  # a disabled user's right password counts like a wrong one, or the limit would tell
        _forgive(tries)
        return user

    async def _choose_place(self, user_id: str, wanted: Place) -> Place:
        async with answering():
            memberships = await self._accounts.list_memberships(user_id)
        if wanted.org is None:
            active = [each for each in memberships if each.org_is_active]
            return Place() if not active else Place(active[0].org, _choose_project(active[0], wanted.project))
        for each in memberships:
            if each.org == wanted.org and each.org_is_active:
                return Place(each.org, _choose_project(each, wanted.project))
        raise ApiError(FORBIDDEN, "you are no member of this organization", param="organization")

    async def _user_of(self, identity: SessionIdentity) -> User:
        async with answering():
            user = await self._accounts.fetch_user(identity.record.user)
        if user is None:
            raise _refused()
        return user

    async def _open(
        self, user: User, place: Place, replaced: Replaced | None, ends_at_s: int | None = None
    ) -> Opened:
        async with answering():
            value = await self._sessions.open_session(user, place, replaced, ends_at_s)
        record = None if value is None else await self._sessions.fetch_session(digest_of(value))
        if value is None or record is None:  # the user, the password or the session went meanwhile
            raise _refused()
        return Opened(value, record)


def _forgive(tries: Sequence[tuple[Limit, str]]) -> None:
    for limit, name in tries:
        limit.forgive(name)


def _choose_project(membership: Membership, wanted: str | None) -> str | None:
    if wanted is None:
        return membership.projects[0] if membership.projects else None
    if wanted not in membership.projects:
        raise ApiError(FORBIDDEN, "the organization has no such project", param="project")
    return wanted


def _refused() -> ApiError:
    return unauthorized("the address or the password is wrong")
