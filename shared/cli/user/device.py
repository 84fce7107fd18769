"""Login by device (RFC 8628), without the terminal.

Decides how often to ask and when to give up. Clock and sleep are arguments. Must not know where the token goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.cli.user.api import Api, Refused
from shared.cli.user.command import is_token
from shared.cli.user.document import Document, number_at, text_at
from shared.cli.user.failure import FAILED, NOT_LOGGED_IN, TRY_LATER, UNREACHABLE, Failure

CLIENT = "b3os-cli"
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_USUAL_INTERVAL_S = 5
_SLOWER_BY_S = 5
_LONGEST_INTERVAL_S = 60
_LONGEST_LIFE_S = 3600
_MOST_SECRET = 512

_DENIED = "the login was denied"
_EXPIRED = "the code is out of date; run `b3os login` again"


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the server gave. `device_code` is a secret."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in_s: int
    interval_s: int

    def public_facts(self) -> Document:
        """What a person, or the program that shows it to one, needs."""
        return {
            "user_code": self.user_code,
            "verification_uri": self.verification_uri,
            "verification_uri_complete": self.verification_uri_complete or None,
            "expires_in": self.expires_in_s,
        }


def parse_device_code(document: Document) -> DeviceCode:
    """Read the answer to `POST /v1/auth/device/code`; times out of bounds are brought into them.

    Raises:
        Failure: something is missing.
    """
    interval_s = number_at(document, "interval")
    expires_in_s = number_at(document, "expires_in")
    code = DeviceCode(
        device_code=text_at(document, "device_code"),
        user_code=text_at(document, "user_code"),
        verification_uri=text_at(document, "verification_uri"),
        verification_uri_complete=text_at(document, "verification_uri_complete"),
        expires_in_s=min(max(1, expires_in_s or 0), _LONGEST_LIFE_S),
        interval_s=min(max(1, _USUAL_INTERVAL_S if interval_s is None else interval_s), _LONGEST_INTERVAL_S),
    )
    if not (0 < len(code.device_code) <= _MOST_SECRET and code.user_code and code.verification_uri):
        raise Failure("the server began no login that this command understands")
    return code


@dataclass(frozen=True, slots=True)
class Poll:
    """The wait for a person to say yes elsewhere. `clock` gives monotonic seconds."""

    api: Api
    code: DeviceCode
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def wait_for_token(self) -> str:
        """Ask until there is an answer.

        Raises:
            Failure: it was denied, or nobody said yes in time.
        """
        ends_s = self.clock() + self.code.expires_in_s
        interval_s = self.code.interval_s
        while self.clock() + interval_s <= ends_s:
            self.sleep(interval_s)
            try:
                return _parse_token(self._ask())
            except Refused as refused:
                interval_s = _next_interval(refused, interval_s)
            except Failure as failure:
                if failure.exit_code != UNREACHABLE:
                    raise
                interval_s = min(interval_s * 2, _LONGEST_INTERVAL_S)  # RFC 8628, 3.5
        raise Failure(_EXPIRED, FAILED)

    def _ask(self) -> Document:
        body = {"grant_type": GRANT, "device_code": self.code.device_code, "client_id": CLIENT}
        return self.api.ask("POST", "/v1/auth/device/token", body)


def _next_interval(refused: Refused, interval_s: int) -> int:
    refusal = refused.refusal
    match refusal.code:
        case "authorization_pending":
            return interval_s
        case "slow_down":
            return interval_s + _SLOWER_BY_S
        case "access_denied":
            raise Failure(_DENIED, NOT_LOGGED_IN) from None
        case "expired_token":
            raise Failure(_EXPIRED, FAILED) from None
        case _:
            if refusal.exit_code != TRY_LATER:
                raise refusal.as_failure() from None
            return min(max(interval_s * 2, refusal.retry_after_s or 0), _LONGEST_INTERVAL_S)


def _parse_token(document: Document) -> str:
    token = text_at(document, "access_token")
    if not is_token(token):
        raise Failure("the server sent no token that this command understands")
    return token
