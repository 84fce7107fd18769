"""What operators' commands say of a Redis that is not there."""

from __future__ import annotations

import functools

import pytest
from click.testing import CliRunner

from edge.admin.nodes import nodes
from shared.redis import RedisSettings, connect_redis
from tests.redis_server import free_port


def test_where_redis_was_sought_is_said_without_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("B3OS_REDIS_URL", f"redis://edge:hidden@127.0.0.1:{port}/0")
    done = CliRunner().invoke(nodes, [])
    words = f"Redis at 127.0.0.1:{port} does not answer as expected; B3OS_REDIS_URL says where it is"
    assert (done.exit_code, done.output) == (1, f"Error: {words}\n")


def test_that_nothing_says_where_redis_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("B3OS_REDIS_URL", raising=False)
    elsewhere = functools.partial(connect_redis, f"redis://127.0.0.1:{free_port()}/0")
    monkeypatch.setattr("edge.cli.connect_redis", lambda url: elsewhere())
    done = CliRunner().invoke(nodes, [])
    words = "Redis at 127.0.0.1:6379 does not answer as expected; B3OS_REDIS_URL says where it is, and is not set"
    assert (done.exit_code, done.output) == (1, f"Error: {words}\n")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:hidden@cache.example/0", "cache.example"),
        ("rediss://:hidden@10.0.0.7:7000", "10.0.0.7:7000"),
        ("unix://user:hidden@/run/redis.sock?db=0", "/run/redis.sock"),
    ],
)
def test_a_place_has_no_credential(url: str, place: str) -> None:
    assert RedisSettings(url=url).place == place
