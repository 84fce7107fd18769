"""The 60-second token with which the edge tells a node who is calling.

Decides what the token holds and when it is valid. Must not know where keys are kept or how often a token was seen.
EdDSA, so that a node, which holds public keys only, can never issue one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.ids import REQUEST_ID

ISSUER = "b3os-edge"
TYPE = "b3os-node+jwt"
LIFETIME_S = 60
SKEW_S = 5
_CLAIMS = ("iss", "aud", "sub", "act", "prj", "scp", "lim", "cap", "iat", "nbf", "exp", "jti", "htm", "htu")


class InvalidNodeToken(Exception):
    """The token is not one that this node takes for this request. The message is for the log, not for a caller."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, as the edge proved it.

    Attributes:
        org: organization id. actor_kind: `key`, `token` or `session`. actor_id: whom it is counted under, the id of
            the key or token, or of a session's user.
        limits: the organization's limits; empty while none are set. spend_cap: the key's cap, if it has one.
    """

    org: str
    project: str
    actor_kind: str
    actor_id: str
    scopes: tuple[str, ...]
    limits: Mapping[str, int]
    spend_cap: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class NodeToken:
    """A verified token: the caller, and the request id that it may be used for once until `expires_at_s`.

    Attributes:
        audience: the nodes that take it.
    """

    caller: Caller
    request_id: str
    expires_at_s: int
    audience: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SigningKey:
    """The edge's private key under its id."""

    kid: str
    private: Ed25519PrivateKey


def mint(
    key: SigningKey, caller: Caller, *, audience: list[str], request_id: str, method: str, path: str, now_s: int
) -> str:
    """Sign a token for one request to any node of `audience` (RFC 7519; `htm` and `htu` after RFC 9449)."""
    claims = {
        "iss": ISSUER,
        "aud": audience,
        "sub": caller.org,
        "act": {"kind": caller.actor_kind, "id": caller.actor_id},
        "prj": caller.project,
        "scp": list(caller.scopes),
        "lim": dict(caller.limits),
        "cap": None if caller.spend_cap is None else dict(caller.spend_cap),
        "iat": now_s,
        "nbf": now_s,
        "exp": now_s + LIFETIME_S,
        "jti": request_id,
        "htm": method,
        "htu": path,
    }
    return jwt.encode(claims, key.private, algorithm="EdDSA", headers={"typ": TYPE, "kid": key.kid})


def verify(
    token: str, keys: Mapping[str, Ed25519PublicKey], *, node_id: str, method: str, path: str, now_s: float
) -> NodeToken:
    """Check signature, type, audience, times, method and path.

    Raises:
        InvalidNodeToken: any of them is wrong, or a claim is missing or of the wrong type.
    """
    if not token.isascii():
        raise InvalidNodeToken("not ASCII")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != TYPE:
            raise InvalidNodeToken("typ is not a node token's")
        key = keys.get(header.get("kid", ""))
        if key is None:
            raise InvalidNodeToken("kid is unknown")
        # PyJWT has no clock argument: it checks signature, issuer and audience here, we check the times below.
        claims = jwt.decode(
            token,
            key,
            algorithms=["EdDSA"],
            audience=node_id,
            issuer=ISSUER,
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.PyJWTError as error:
        raise InvalidNodeToken(type(error).__name__) from None
    if missing := [name for name in _CLAIMS if name not in claims]:
        raise InvalidNodeToken(f"claims are missing: {', '.join(missing)}")
    if (claims["htm"], claims["htu"]) != (method, path):
        raise InvalidNodeToken("made for another method or path")
    try:
        _check_values(claims, now_s)
        return _read(claims)
    except (TypeError, KeyError):
        raise InvalidNodeToken("a claim has the wrong type") from None


def _check_values(claims: dict[str, Any], now_s: float) -> None:
    if not claims["nbf"] - SKEW_S <= now_s < claims["exp"] + SKEW_S:
        raise InvalidNodeToken("expired, or not valid yet")
    if claims["exp"] - claims["iat"] > LIFETIME_S:
        raise InvalidNodeToken("lives too long")
    if not REQUEST_ID.fullmatch(claims["jti"]):
        raise InvalidNodeToken("jti is not a request id")


def _read(claims: dict[str, Any]) -> NodeToken:
    caller = Caller(
        org=str(claims["sub"]),
        project=str(claims["prj"]),
        actor_kind=str(claims["act"]["kind"]),
        actor_id=str(claims["act"]["id"]),
        scopes=tuple(map(str, claims["scp"])),
        limits=dict(claims["lim"]),
        spend_cap=claims["cap"],
    )
    audience = claims["aud"]
    ids = [audience] if isinstance(audience, str) else audience
    return NodeToken(caller, str(claims["jti"]), int(claims["exp"]), frozenset(map(str, ids)))
