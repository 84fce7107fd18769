"""Node tokens: valid for one node, one route, one minute; anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shared.node_token import Caller, InvalidNodeToken, NodeToken, SigningKey, mint, verify

NOW_S = 1_800_000_000
PATH = "/v1/infer/v1/messages"
REQUEST = "req_0123456789abcdefghjkmnpqrs"
KEY = SigningKey("k1", Ed25519PrivateKey.generate())
CALLER = Caller("org_1", "prj_1", "key", "key_1", ("infer:run",), {"requests_per_minute": 60}, None)


def token(**changes: Any) -> str:
    arguments: dict[str, Any] = {"audience": ["n1", "n2"], "request_id": REQUEST, "method": "POST", "path": PATH}
    return mint(KEY, CALLER, **{**arguments, "now_s": NOW_S, **changes})


def check(text: str, **changes: Any) -> NodeToken:
    arguments: dict[str, Any] = {"node_id": "n1", "method": "POST", "path": PATH, "now_s": NOW_S}
    return verify(text, {"k1": KEY.private.public_key()}, **{**arguments, **changes})


def forged(
    change: Callable[[dict[str, Any], dict[str, Any]], None], *, algorithm: str = "EdDSA", key: Any = None
) -> str:
    header = jwt.get_unverified_header(token())
    claims = jwt.decode(token(), options={"verify_signature": False})
    change(header, claims)
    return jwt.encode(claims, key or KEY.private, algorithm=algorithm, headers=header)


def test_a_token_tells_its_node_who_is_calling() -> None:
    assert check(token()) == NodeToken(CALLER, REQUEST, NOW_S + 60, frozenset({"n1", "n2"}))
    assert check(token(), node_id="n2").caller == CALLER


@pytest.mark.parametrize("now_s", [NOW_S - 5, NOW_S + 64.9])
def test_clocks_may_differ_by_five_seconds(now_s: float) -> None:
    assert check(token(), now_s=now_s).request_id == REQUEST


@pytest.mark.parametrize("now_s", [NOW_S - 6, NOW_S + 65])
def test_a_token_lives_for_a_minute(now_s: float) -> None:
    with pytest.raises(InvalidNodeToken, match="expired"):
        check(token(), now_s=now_s)


@pytest.mark.parametrize("changes", [{"node_id": "n3"}, {"method": "GET"}, {"path": "/v1/infer/models"}])
def test_a_token_is_good_for_its_node_method_and_path_only(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidNodeToken):
        check(token(), **changes)


@pytest.mark.parametrize(
    "claim", ["iss", "aud", "sub", "act", "prj", "scp", "lim", "cap", "iat", "nbf", "exp", "jti", "htm", "htu"]
)
def test_every_claim_is_required(claim: str) -> None:
    with pytest.raises(InvalidNodeToken):
        check(forged(lambda header, claims: claims.pop(claim)))


@pytest.mark.parametrize("claims", [{"exp": 1e300}, {"exp": NOW_S + 61}, {"jti": "req_1\r\nx: y"}])
def test_a_signed_token_still_has_to_be_short_and_well_formed(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidNodeToken):
        check(forged(lambda header, old: old.update(claims)))


@pytest.mark.parametrize(("claim", "value"), [("exp", "never"), ("act", 5), ("scp", 1), ("lim", 1), ("nbf", None)])
def test_a_claim_of_the_wrong_type_is_refused(claim: str, value: Any) -> None:
    with pytest.raises(InvalidNodeToken):
        check(forged(lambda header, claims: claims.update({claim: value})))


def test_another_issuer_s_key_is_refused_even_under_a_known_kid() -> None:
    with pytest.raises(InvalidNodeToken, match="InvalidSignatureError"):
        check(forged(lambda header, claims: None, key=Ed25519PrivateKey.generate()))


def test_an_unknown_kid_and_a_foreign_type_are_refused() -> None:
    with pytest.raises(InvalidNodeToken, match="kid"):
        check(forged(lambda header, claims: header.update(kid="k2")))
    with pytest.raises(InvalidNodeToken, match="typ"):
        check(forged(lambda header, claims: header.update(typ="JWT")))


def test_a_public_key_used_as_a_shared_secret_is_refused() -> None:
    public = KEY.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    with pytest.raises(InvalidNodeToken, match="InvalidAlgorithmError"):
        check(forged(lambda header, claims: header.update(alg="HS256"), algorithm="HS256", key=public))


@pytest.mark.parametrize("text", ["", "a.b.c", "x", "....", "e30.e30.", "\xff.a.b", "\udcff.a.b"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InvalidNodeToken):
        check(text)
