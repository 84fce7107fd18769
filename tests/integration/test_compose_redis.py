"""Redis as docker-compose.yml starts it, with the secrets that its command makes, on a real server."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from shared.cli.dev.redis_server import find_redis_server
from tests.redis_server import free_port, wait_until_up
from tests.unit.test_compose import SERVICES, make_secrets


def url_in(file: Path, port: int) -> str:
    """What a container is given, for a server on this machine."""
    return file.read_text().strip().removeprefix("B3OS_REDIS_URL=").replace("@redis:6379", f"@127.0.0.1:{port}")


def test_it_takes_both_sides_and_tells_everybody_else_to_log_in(tmp_path: Path) -> None:
    secrets, data, port = tmp_path / "secrets", tmp_path / "data", free_port()
    make_secrets(secrets)
    data.mkdir()
    told = [each.replace("/run/secrets", str(secrets)) for each in SERVICES["redis"]["command"][1:]]
    here = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(data)]
    process = subprocess.Popen([str(find_redis_server()), *told, *here], stdout=subprocess.DEVNULL)
    try:
        password = (secrets / "operator.password").read_text().strip()
        wait_until_up(f"redis://operator:{password}@127.0.0.1:{port}/0", process)
        for side in ("edge", "node"):
            with Redis.from_url(url_in(secrets / f"{side}.env", port)) as client:
                assert client.ping()
                with pytest.raises(NoPermissionError):
                    client.keys("*")
        with socket.create_connection(("127.0.0.1", port)) as stranger:  # what the container's health check asks
            stranger.sendall(b"PING\r\n")
            assert b"NOAUTH" in stranger.recv(100)
        assert "grep -q NOAUTH" in SERVICES["redis"]["healthcheck"]["test"][1]
    finally:
        process.terminate()
        process.wait(10)
