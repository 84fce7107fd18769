"""Settings are read whole, with every fault told."""

from __future__ import annotations

import pytest

from edge.settings import EdgeSettings
from node.settings import NodeSettings
from shared.node_hosts import NodeHosts
from shared.settings import SettingsError, load_settings


def test_nodes_come_as_json_from_the_environment() -> None:
    environ = {"B3OS_EDGE_NODES": '{"n1":"http://127.0.0.1:1/","n2":"https://node.example"}', "B3OS_EDGE_PORT": "0"}
    settings = load_settings(EdgeSettings, environ, {})
    assert settings.edge.nodes == {"n1": "http://127.0.0.1:1", "n2": "https://node.example"}
    assert settings.edge.port == 0


@pytest.mark.parametrize("nodes", ['{"N 1":"http://a"}', '{"n1":"a:1"}', '{"n1":"http://a/path"}', '{"n1":1}', "n1"])
def test_a_wrong_node_is_told(nodes: str) -> None:
    with pytest.raises(SettingsError, match="B3OS_EDGE_NODES"):
        load_settings(EdgeSettings, {"B3OS_EDGE_NODES": nodes}, {})


def test_a_wrong_redis_url_is_told_without_its_password() -> None:
    with pytest.raises(SettingsError, match="B3OS_REDIS_URL") as raised:
        load_settings(EdgeSettings, {"B3OS_REDIS_URL": "http://:secret@localhost"}, {})
    assert "secret" not in str(raised.value)


def test_without_nodes_they_are_those_of_the_registry_in_private_networks() -> None:
    settings = load_settings(EdgeSettings, {}, {})
    assert settings.edge.nodes == {}
    assert NodeHosts(settings.edge.node_hosts).allows("http://10.0.0.1:7710")
    named = load_settings(EdgeSettings, {"B3OS_EDGE_NODE_HOSTS": '["*.nodes.example"]'}, {})
    assert named.edge.node_hosts == ("*.nodes.example",)
    with pytest.raises(SettingsError, match="B3OS_EDGE_NODE_HOSTS"):
        load_settings(EdgeSettings, {"B3OS_EDGE_NODE_HOSTS": '["10.0.0.1/8"]'}, {})


def test_a_node_says_where_it_is_or_is_told_to() -> None:
    def url(**settings: str) -> str:
        environ = {f"B3OS_NODE_{name}": value for name, value in settings.items()}
        return load_settings(NodeSettings, environ, {}).node.told_url()

    assert url() == "http://127.0.0.1:7710"
    assert url(HOST="::1", PORT="1") == "http://[::1]:1"
    assert url(HOST="0.0.0.0", URL="https://node-1:7710/") == "https://node-1:7710"
    tls = {"TLS_CERT_FILE": "cert.pem", "TLS_KEY_FILE": "key.pem"}
    assert url(**tls) == "https://127.0.0.1:7710"
    assert url(**tls, URL="http://behind-a-proxy:1") == "http://behind-a-proxy:1"
    for wrong in ({"HOST": "0.0.0.0"}, {"HOST": "::"}, {"URL": "node-1:7710"}, {"URL": "http://a/path"}):
        with pytest.raises(SettingsError, match="B3OS_NODE"):
            url(**wrong)


@pytest.mark.parametrize(
    ("variable", "size_bytes"),
    [("MAX_BODIES_BYTES", 33_554_432), ("MAX_BODIES_PER_ORGANIZATION_BYTES", 33_554_431)],
)
def test_there_is_room_for_the_largest_body(variable: str, size_bytes: int) -> None:
    with pytest.raises(SettingsError, match=f"{variable.lower()} has no room for a body of max_request_bytes"):
        load_settings(EdgeSettings, {f"B3OS_EDGE_{variable}": str(size_bytes)}, {})
