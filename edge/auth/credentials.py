"""API keys and CLI tokens: how they are written, and where a request may carry one.

Decides what is a well-formed credential. Must not know which of them exist: that is the key store's.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shared.base32 import encode_base32
from shared.errors import UNAUTHORIZED, ApiError

MAX_CHARACTERS = 128
SECRET_BITS = 160
# What secret scanners may look for; published in the docs.
SCANNER_PATTERN = r"\bb3os_(sk|pat)_[0-9a-hjkmnp-tv-z]{32}_[0-9a-hjkmnp-tv-z]{7}\b"
_GRAMMAR = re.compile(r"b3os_(?P<kind>sk|pat)_(?P<secret>[0-9a-hjkmnp-tv-z]{32})_(?P<check>[0-9a-hjkmnp-tv-z]{7})")

Kind = Literal["sk", "pat"]


class Headers(Protocol):
    """The one thing that is asked of a request's headers: every value of a name, in any case."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """All values of `key`."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A well-formed credential. `token` is the secret itself: never logged, never stored."""

    kind: Kind
    token: str

    @property
    def digest(self) -> str:
        """SHA-256 of the whole token in hex, its name in the store; 160 random bits need neither salt nor argon2."""
        return hashlib.sha256(self.token.encode()).hexdigest()

    @property
    def hint(self) -> str:
        """The first four characters of the secret, all that lists ever show."""
        return self.token.split("_")[2][:4]

    def __repr__(self) -> str:
        return f"Credential({self.kind}, {self.hint}…)"


def checksum(body: str) -> str:
    """CRC-32 of everything before the last underscore, as 7 characters; it finds typing errors, not forgeries."""
    return encode_base32(zlib.crc32(body.encode()), 7)


def mint_credential(kind: Kind = "sk", secret: int | None = None) -> Credential:
    """A new credential from `secret`, or from 160 bits of the system's randomness."""
    bits = secrets.randbits(SECRET_BITS) if secret is None else secret
    body = f"b3os_{kind}_{encode_base32(bits, SECRET_BITS // 5)}"
    return Credential(kind, f"{body}_{checksum(body)}")


def parse_credential(token: str) -> Credential:
    """Check length, grammar and checksum, cheapest first.

    Raises:
        ApiError: `UNAUTHORIZED`; the message says which of them is at fault.
    """
    matched = _GRAMMAR.fullmatch(token) if len(token) <= MAX_CHARACTERS else None
    if matched is None:
        raise unauthorized("the API key is malformed: it reads b3os_sk_, 32 characters, _ and 7 characters")
    if checksum(token.rpartition("_")[0]) != matched["check"]:
        raise unauthorized("the API key fails its checksum: a character is wrong or missing, so copy it again whole")
    return Credential("sk" if matched["kind"] == "sk" else "pat", token)


def carries_key(headers: Headers) -> bool:
    """Whether the request means to show a key at all, be it a bad one."""
    return bool(headers.getall("Authorization", ()) or headers.getall("x-api-key", ()))


def extract_credential(headers: Headers) -> Credential:
    """The one credential of a request: `Authorization: Bearer` (RFC 6750, any case) or `x-api-key`.

    Raises:
        ApiError: `UNAUTHORIZED`; there is none, more than one, or it is malformed.
    """
    bearers = [_bearer(value) for value in headers.getall("Authorization", ())]
    api_keys = [value.strip() for value in headers.getall("x-api-key", ())]
    if len(bearers) > 1 or len(api_keys) > 1:
        raise unauthorized("the request carries more than one credential")
    found = {*bearers, *api_keys}
    if not found:
        raise unauthorized("the request carries no API key: send Authorization: Bearer KEY, or x-api-key: KEY")
    if len(found) > 1:
        raise unauthorized("Authorization and x-api-key carry different credentials")
    return parse_credential(found.pop())


def unauthorized(message: str) -> ApiError:
    """A 401 with the challenge that RFC 9110 §11.6.1 demands."""
    return ApiError(UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})


def _bearer(value: str) -> str:
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise unauthorized("the scheme of Authorization must be Bearer")
    return rest.strip()
