"""What every command does when the network or the server is not as it should be."""

from __future__ import annotations

import base64
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from shared.cli.user import api, transport
from shared.cli.user.failure import FAILED, NOT_LOGGED_IN, TRY_LATER, UNREACHABLE, USAGE
from tests.e2e.stack import free_ports
from tests.integration.cli.conftest import KEY, Cli, Ran
from tests.integration.cli.played import PlayedServer, Reply, as_json, playing

COMMANDS = {
    ("whoami",): ("GET", "/v1/auth/session"),
    ("keys", "list"): ("GET", "/v1/keys"),
    ("keys", "create", "--name", "a", "--project", "b"): ("POST", "/v1/keys"),
    ("keys", "revoke", "a"): ("DELETE", "/v1/keys/a"),
    ("models",): ("GET", "/v1/infer/models"),
    ("chat", "Hi"): ("GET", "/v1/infer/models"),
    ("chat", "Hi", "--model", "m"): ("POST", "/v1/infer/v1/messages"),
    ("requests",): ("GET", "/v1/requests"),
    ("requests", "a"): ("GET", "/v1/requests/a"),
    ("usage",): ("GET", "/v1/usage"),
    ("login", "--no-browser"): ("POST", "/v1/auth/device/code"),
}
every_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
REDIRECT_HEADERS = {"Location": "http://127.0.0.1:1/elsewhere", "request-id": "req_moved"}


def check_sentence(ran: Ran) -> str:
    """Stderr is one clean sentence, without a secret."""
    assert ran.out == ""
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    assert KEY not in ran.err
    assert "\x1b" not in ran.err
    return ran.err


@every_command
@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (as_json({"error": {"message": "bad key", "type": "authentication_error"}}, 401), NOT_LOGGED_IN, "bad key"),
        (as_json({"detail": "too fast"}, 429, Retry_After="3", request_id="req_1"), TRY_LATER, "3 s (req_1)"),
        (as_json({"detail": f"{KEY} is \x1b[2J bad"}, 403), FAILED, "b3os_sk_… is ␛[2J bad"),
        (as_json({"title": "Node unavailable"}, 503), TRY_LATER, "Node unavailable"),
        (Reply(b"<html>", 502), TRY_LATER, "502"),
        (Reply(b"", 307, REDIRECT_HEADERS), FAILED, "redirects to http://127.0.0.1:1/elsewhere"),
        (Reply(raw=b""), UNREACHABLE, "broke"),
        (Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n"), UNREACHABLE, "no HTTP server"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n"), UNREACHABLE, "no HTTP server"),
        (Reply(raw=b"HTTP/1.1 200 " + b"x" * 100_000), UNREACHABLE, "no HTTP server"),
        (Reply(raw=b"HTTP/1.1 400 Bad\r\nContent-Length: 100\r\n\r\n{"), FAILED, "400"),
        (Reply(raw=b"HTTP/1.1 99999 Odd\r\n\r\n"), UNREACHABLE, "no HTTP server"),
    ],
    ids=[*("401", "429", "403", "503", "502", "307", "empty", "ssh", "headers", "long", "cut", "odd")],
)
def test_a_refusal_or_a_stranger_is_one_sentence(
    cli: Cli, server: PlayedServer, command: tuple[str, ...], reply: Reply, code: int, words: str
) -> None:
    server.routes[COMMANDS[command]] = reply
    ran = cli.run(*command)
    assert ran.code == code
    assert words in check_sentence(ran)
    assert len(server.seen) == 1, "nothing is asked twice, and no redirect is followed"


@every_command
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_a_success_that_is_no_document_is_told(
    cli: Cli, server: PlayedServer, command: tuple[str, ...], body: bytes
) -> None:
    server.routes[COMMANDS[command]] = Reply(body)
    ran = cli.run(*command)
    assert ran.code == (UNREACHABLE if "m" in command else FAILED)
    check_sentence(ran)


@every_command
def test_nobody_there_is_told(stranger: Cli, command: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    ran = stranger.run(*command, B3OS_URL=f"http://127.0.0.1:{port}", B3OS_API_KEY=KEY)
    assert ran.code == UNREACHABLE
    assert f"nobody listens at 127.0.0.1:{port}" in check_sentence(ran)


def test_an_unknown_host_is_told(stranger: Cli) -> None:
    ran = stranger.run("models", B3OS_URL="https://b3os.invalid", B3OS_API_KEY=KEY)
    assert ran.code == UNREACHABLE
    assert "no host b3os.invalid" in check_sentence(ran)


@every_command
def test_a_key_is_not_sent_in_clear_to_another_machine(stranger: Cli, command: tuple[str, ...]) -> None:
    ran = stranger.run(*command, B3OS_URL="http://b3os.invalid", B3OS_API_KEY=KEY)
    assert ran.code == USAGE
    assert "--insecure-http" in check_sentence(ran)
    insisting = stranger.run(*command, "--insecure-http", B3OS_URL="http://b3os.invalid", B3OS_API_KEY=KEY)
    assert insisting.code == UNREACHABLE


def test_a_server_that_says_nothing_is_given_up(
    cli: Cli, server: PlayedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "HEAD_OF_STREAM_S", 0.01)
    given_up = threading.Event()

    def stay_silent(_seen: object) -> Reply:
        given_up.wait(60)
        return Reply()

    server.routes["POST", "/v1/infer/v1/messages"] = stay_silent
    try:
        ran = cli.run("chat", "Hi", "--model", "m")
    finally:
        given_up.set()
    assert ran.code == UNREACHABLE
    assert "does not answer in time" in check_sentence(ran)


def test_an_answer_without_end_is_given_up(cli: Cli, server: PlayedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.Answer.read, "__defaults__", (1000,))
    server.routes["GET", "/v1/infer/models"] = Reply(b"x" * 1001)
    ran = cli.run("models")
    assert ran.code == FAILED
    assert "more than 1000 bytes" in check_sentence(ran)


def test_a_refusal_that_comes_before_a_long_body_is_sent_is_heard(
    cli: Cli, server: PlayedServer, tmp_path: Path
) -> None:
    picture = tmp_path / "big.gif"
    picture.write_bytes(b"GIF89a" + os.urandom(8_000_000))
    server.routes["POST", "/v1/infer/v1/messages"] = as_json({"error": {"message": "too large"}}, 413)
    ran = cli.run("chat", "--model", "m", "--image", str(picture), "Hi")
    assert ran.code == FAILED
    assert "too large" in check_sentence(ran)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def encrypted(authority: trustme.CA) -> Iterator[PlayedServer]:
    """A server with a certificate for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with playing(context) as server:
        server.routes["GET", "/v1/infer/models"] = as_json({"data": []})
        yield server


def test_a_certificate_of_a_known_authority_is_taken(
    stranger: Cli, encrypted: PlayedServer, authority: trustme.CA, tmp_path: Path
) -> None:
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(roots)
    ran = stranger.run("models", B3OS_URL=encrypted.url, B3OS_API_KEY=KEY, SSL_CERT_FILE=str(roots))
    assert ran.code == 0, ran.err
    assert encrypted.seen[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_certificate_of_nobody_is_not(stranger: Cli, encrypted: PlayedServer) -> None:
    ran = stranger.run("models", "--insecure-http", B3OS_URL=encrypted.url, B3OS_API_KEY=KEY)
    assert ran.code == UNREACHABLE
    assert "is not trusted" in check_sentence(ran)
    assert encrypted.seen == []


def test_tls_where_there_is_none_is_told(stranger: Cli, server: PlayedServer) -> None:
    ran = stranger.run("models", B3OS_URL=server.url.replace("http:", "https:"), B3OS_API_KEY=KEY)
    assert ran.code == UNREACHABLE
    assert "no TLS connection" in check_sentence(ran)
    assert server.seen == []


def test_a_proxy_gets_a_connect_and_not_the_key(stranger: Cli, server: PlayedServer) -> None:
    proxy = server.url.replace("http://", "http://me:secret@")
    ran = stranger.run(
        "models", B3OS_URL="https://b3os.invalid", B3OS_API_KEY=KEY, HTTPS_PROXY=proxy, https_proxy=None
    )
    assert ran.code == UNREACHABLE
    check_sentence(ran)
    (seen,) = server.seen
    assert (seen.method, seen.target) == ("CONNECT", "b3os.invalid:443")
    assert seen.headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
    assert "authorization" not in seen.headers


def test_a_command_says_who_it_is_and_accepts_no_compression(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", "/v1/infer/models"] = as_json({"data": []})
    cli.run("models")
    headers = server.seen[0].headers
    assert headers["user-agent"].startswith("b3os-cli/")
    assert headers["accept-encoding"] == "identity"


def test_a_base_url_may_be_that_of_an_sdk(cli: Cli, server: PlayedServer) -> None:
    server.routes["GET", "/v1/infer/models"] = as_json({"data": []})
    assert cli.run("models", "--url", f"{server.url}/v1/infer").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(stranger: Cli, shell: str) -> None:
    ran = stranger.run("completion", shell)
    assert ran.code == 0
    assert f"_B3OS_COMPLETE={shell}_complete" in ran.out
    assert stranger.run("completion", "tcsh").code == USAGE


@every_command
def test_every_command_has_help_and_the_same_options(stranger: Cli, command: tuple[str, ...]) -> None:
    ran = stranger.run(*command, "--help")
    assert ran.code == 0
    assert {"--url", "--json", "--insecure-http", "B3OS_URL"} <= set(ran.out.replace("]", " ").split())
