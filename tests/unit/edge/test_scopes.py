"""Scopes are named in several places, and all of them agree."""

from __future__ import annotations

from typing import get_args

from edge.api.keys import Scope
from edge.auth.scopes import INFERENCE_SCOPES, ROLES, SCOPES, order_scopes
from tests.openapi import load


def test_the_scopes_of_a_request_and_of_the_file_are_those_of_the_code() -> None:
    assert get_args(Scope) == SCOPES
    schemas = load()["components"]["schemas"]
    assert tuple(schemas["Scope"]["enum"]) == SCOPES
    assert schemas["Membership"]["properties"]["role"]["enum"] == list(ROLES)


def test_every_role_may_infer_and_has_nothing_that_is_no_scope() -> None:
    for scopes in ROLES.values():
        assert set(INFERENCE_SCOPES) <= set(scopes) <= set(SCOPES)
        assert order_scopes(scopes) == scopes


def test_scopes_come_once_and_in_one_order() -> None:
    assert order_scopes(["usage:read", "infer:run", "usage:read", "nonsense"]) == ("infer:run", "usage:read")
