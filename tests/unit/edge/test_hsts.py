"""Under which names browsers are told to come by TLS alone."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from edge.auth.hosts import Hosts
from edge.hsts import VALUE, build_hsts


@pytest.mark.parametrize(
    ("host", "is_said"),
    [
        ("dash.example.com", True),
        ("DASH.example.com:443", True),
        ("shared.example.com:8443", False),
        ("localhost", False),
        ("127.0.0.1:7700", False),
        ("api.example.com", False),
    ],
)
async def test_it_is_said_under_a_dashboard_s_name_on_port_443_alone(host: str, is_said: bool) -> None:
    hosts = Hosts(("dash.example.com", "shared.example.com:8443", "localhost", "127.0.0.1:7700"))
    response = web.Response()
    await build_hsts(hosts)(make_mocked_request("GET", "/", headers={"Host": host}), response)
    assert response.headers.get("Strict-Transport-Security") == (VALUE if is_said else None)
