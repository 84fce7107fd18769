"""Where a node may be that tells its address itself."""

from __future__ import annotations

import pytest

from shared.node_hosts import PRIVATE, NodeHosts


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:7710", "https://10.1.2.3", "http://172.31.0.1:1", "http://192.168.1.1:7710/"),
        *("http://[::1]:7710", "http://[fd00::1]", "http://localhost:7710", "HTTP://LOCALHOST"),
    ],
)
def test_this_machine_and_private_networks_are_allowed_at_first(url: str) -> None:
    assert NodeHosts(PRIVATE).allows(url)


@pytest.mark.parametrize(
    "url",
    [
        *("http://8.8.8.8", "http://169.254.169.254", "http://[fe80::1]", "http://0.0.0.0", "http://172.32.0.1"),
        *("http://[::ffff:8.8.8.8]", "http://node", "http://localhost.example", "http://10.0.0.1.example"),
        *("ftp://10.0.0.1", "10.0.0.1", "http://", "http://u:p@10.0.0.1", "http://10.0.0.1/a", "http://10.0.0.1?a=b"),
        *(
            "http://10.0.0.1#a",
            "http://10.0.0.1:port",
            "http://10.0.0.1:99999",
            "http://[",
            "http://10.0.0.1\\@8.8.8.8",
        ),
        *(
            "http://8.8.8.8 10.0.0.1",
            "http://10.0.0.1\n",
            "http://%31%30.0.0.1",
            "http://1\uff10.0.0.1",
            "http://2130706433",
        ),
        *("http://0x7f.1", "http://127.1", "http://010.0.0.1"),
    ],
)
def test_nothing_else_is(url: str) -> None:
    assert not NodeHosts(PRIVATE).allows(url)


def test_names_are_allowed_one_by_one_or_below_one() -> None:
    hosts = NodeHosts(["node-1", "*.nodes.example", "203.0.113.0/24"])
    for url in ("http://node-1:7710", "https://a.nodes.example", "http://203.0.113.9"):
        assert hosts.allows(url), url
    for url in ("http://node-2", "http://nodes.example", "http://anodes.example", "http://127.0.0.1"):
        assert not hosts.allows(url), url


@pytest.mark.parametrize("entry", ["", "*", "*.", "10.0.0.1/8", "10.0.0.0/33", "http://a", "a/b", "a_b c", "host:80"])
def test_an_entry_that_is_neither_network_nor_name_is_told(entry: str) -> None:
    with pytest.raises(ValueError, match="no network, no name"):
        NodeHosts([entry])
