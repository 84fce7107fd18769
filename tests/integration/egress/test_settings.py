"""The settings of the guard: production's by default, and no way around that by accident."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from node.settings import EgressSection, NodeSettings
from shared.settings import SettingsError, load_settings
from tests.integration.egress.conftest import lab_environment
from tests.integration.egress.lab import Lab


def load(**variables: str) -> EgressSection:
    environment = {f"B3OS_EGRESS_{name.upper()}": value for name, value in variables.items() if name != "env"}
    if "env" in variables:
        environment["B3OS_ENV"] = variables["env"]
    return load_settings(NodeSettings, environment, {}).egress


def test_the_defaults_are_those_of_production() -> None:
    assert load().model_dump() == {
        "environment": "production",
        "nameservers": [],
        "allow_networks": [],
        "deny_networks": [],
        "ca_file": None,
        "ports": [443],
        "step_s": 3,
        "total_s": 10,
        "max_image_bytes": 10_485_760,
        "max_redirects": 3,
    }


@pytest.mark.parametrize("environment", ["dev", "test"])
def test_only_dev_and_test_open_networks(environment: str) -> None:
    assert [str(network) for network in load(env=environment, allow_networks='["127.0.7.0/24"]').allow_networks]
    for other in ("production", "Test", "tests", "", "prod"):
        with pytest.raises(SettingsError, match=r"ALLOW_NETWORKS.*any caller.*B3OS_ENV"):
            load(env=other, allow_networks='["127.0.7.0/24"]')


def test_no_table_opens_networks_either() -> None:
    with pytest.raises(SettingsError, match="any caller"):
        load_settings(NodeSettings, {}, {"egress": {"allow_networks": ["::1/128"]}})


@pytest.mark.parametrize("text", ["1.1.1.1", "1.1.1.1:53", "[2606:4700::1111]:5353", "[::1]", "2606:4700::1111"])
def test_nameservers_are_addresses_with_or_without_a_port(text: str) -> None:
    assert load(nameservers=json.dumps([text])).nameservers == [text]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("nameservers", json.dumps([text])) for text in ("dns.example", "1.1.1.1:", ":53", "[::1", "1.1.1:53", "")),
        *(("nameservers", json.dumps([text])) for text in ("1.1.1.1:0", "1.1.1.1:65536", "[1.1.1.1]:53", "::g")),
        ("nameservers", "1.1.1.1"),
        ("deny_networks", '["10.0.0.1/8"]'),
        ("deny_networks", '["example.com"]'),
        ("ports", "[]"),
        ("ports", "[0]"),
        ("ports", "[65536]"),
        ("ca_file", "/nowhere/ca.pem"),
        ("total_s", "0"),
        ("max_image_bytes", "-1"),
        ("max_redirects", "11"),
    ],
)
def test_a_wrong_setting_is_told_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"B3OS_EGRESS_{name.upper()}"):
        load(**{name: value})


def test_a_node_refuses_to_start_with_open_networks_in_production(lab: Lab) -> None:
    environment = {**os.environ, **lab_environment(lab), "B3OS_NODE_ENGINE": "scripted"}
    for value in ("production", "staging", ""):
        ended = subprocess.run(
            [sys.executable, "-m", "node"],
            env=environment | {"B3OS_ENV": value},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode != 0
        assert "B3OS_EGRESS_ALLOW_NETWORKS" in ended.stderr
        assert "any caller" in ended.stderr
