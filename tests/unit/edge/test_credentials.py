"""The grammar of keys, and where a request may carry one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from edge.auth.credentials import (
    SCANNER_PATTERN,
    Credential,
    checksum,
    extract_credential,
    mint_credential,
    parse_credential,
)
from shared.errors import UNAUTHORIZED, ApiError

secrets = st.integers(min_value=0, max_value=(1 << 160) - 1)
KEY = mint_credential("sk", 1234567890).token
OTHER = mint_credential("sk", 42).token


def refusal(headers: list[tuple[str, str]]) -> ApiError:
    with pytest.raises(ApiError) as raised:
        extract_credential(CIMultiDict(headers))
    assert raised.value.condition is UNAUTHORIZED
    assert raised.value.response_headers() == {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}
    return raised.value


@given(secrets, st.sampled_from(["sk", "pat"]))
def test_what_is_minted_is_parsed(secret: int, kind: str) -> None:
    minted = mint_credential("sk" if kind == "sk" else "pat", secret)
    assert parse_credential(minted.token) == minted
    assert re.fullmatch(SCANNER_PATTERN, minted.token)


@given(secrets, st.data())
def test_any_one_character_change_is_caught(secret: int, data: st.DataObject) -> None:
    token = mint_credential("sk", secret).token
    at = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.characters().filter(lambda c: c != token[at]))
    with pytest.raises(ApiError):
        parse_credential(token[:at] + character + token[at + 1 :])


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    with pytest.raises(ApiError):
        parse_credential(text)


def test_the_checksum_is_the_crc_of_all_before_the_last_underscore() -> None:
    assert checksum("") == "0000000"
    assert checksum("123456789") == "35z8e96"  # the check value of CRC-32, 0xCBF43926


def test_a_trailing_line_feed_is_not_part_of_a_key() -> None:
    with pytest.raises(ApiError, match="malformed"):
        parse_credential(KEY + "\n")


def test_checksum_and_format_faults_say_which() -> None:
    wrong = KEY[:-1] + ("0" if KEY[-1] != "0" else "1")
    assert "checksum" in refusal([("x-api-key", wrong)]).message
    assert "malformed" in refusal([("x-api-key", "sk-ant-something")]).message


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    assert extract_credential(CIMultiDict([("authorization", f"{scheme} {KEY}")])).token == KEY


def test_x_api_key_is_taken_like_a_bearer_token() -> None:
    assert extract_credential(CIMultiDict([("X-Api-Key", KEY)])).token == KEY


def test_the_same_key_twice_under_both_names_passes() -> None:
    headers = CIMultiDict([("Authorization", f"Bearer {KEY}"), ("x-api-key", KEY)])
    assert extract_credential(headers).token == KEY


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}")],
        [("x-api-key", KEY), ("x-api-key", KEY)],
        [("Authorization", f"Bearer {KEY}"), ("x-api-key", OTHER)],
        [("Authorization", f"Basic {KEY}")],
        [("Authorization", KEY)],
        [("Authorization", "Bearer ")],
        [("Authorization", "")],
        [("x-api-key", KEY + "0" * 128)],
    ],
)
def test_anything_but_one_credential_is_refused(headers: list[tuple[str, str]]) -> None:
    refusal(headers)


def test_neither_refusals_nor_reprs_repeat_a_key() -> None:
    wrong = KEY[:-1] + ("0" if KEY[-1] != "0" else "1")
    assert wrong not in refusal([("x-api-key", wrong)]).message
    assert KEY not in repr(Credential("sk", KEY))
