"""Which servers a key may be sent to, and through what."""

from __future__ import annotations

import pytest

from shared.cli.user.address import Address, parse_address
from shared.cli.user.browser import has_browser, is_page
from shared.cli.user.failure import USAGE, Failure
from shared.cli.user.proxy import Proxy, find_proxy, parse_proxy


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.example", "https://api.example"),
        ("https://api.example/", "https://api.example"),
        ("https://api.example/v1/infer", "https://api.example"),
        ("https://api.example/v1/infer/v1/", "https://api.example"),
        ("https://api.example//v1/infer//", "https://api.example"),
        ("https://api.example/v1/", "https://api.example/v1"),
        ("HTTPS://API.Example:443", "https://api.example"),
        ("https://api.example:8443/b3os/v1/infer", "https://api.example:8443/b3os"),
        ("http://127.0.0.1:7700", "http://127.0.0.1:7700"),
        ("http://localhost:7700/v1/infer", "http://localhost:7700"),
        ("http://[::1]:7700", "http://[::1]:7700"),
    ],
)
def test_a_base_url_is_read_into_its_one_form(text: str, url: str) -> None:
    address = parse_address(text, insecure_http=False)
    assert address.url == url
    assert parse_address(address.url, insecure_http=False) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.example",
        "ftp://api.example",
        "https://",
        "https://:443",
        "https://api.example:99999",
        "https://api.example:x",
        "https://user:hunter2@api.example",
        "https://api.example?token=hunter2",
        "https://api.example#hunter2",
        "https://api.example/\nhunter2",
        "https://bücher.example",
        "https://[::1",
        "http://api.example",
        "http://10.0.0.1",
        "http://127.0.0.1.example",
        "http://localhost.example",
        "http://0.0.0.0:7700",
        "http://[::ffff:10.0.0.1]",
    ],
)
def test_what_is_no_safe_base_url_is_refused_and_not_told_back(text: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_address(text, insecure_http=False)
    assert caught.value.exit_code == USAGE
    assert "hunter2" not in caught.value.message


def test_a_key_travels_in_clear_only_by_the_word_of_the_caller() -> None:
    assert parse_address("http://10.0.0.1:80", insecure_http=True) == Address("http", "10.0.0.1", 80, "")


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:s%40crt@proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    return monkeypatch


def address(url: str) -> Address:
    return parse_address(url, insecure_http=True)


def test_tls_goes_through_the_proxy_of_the_environment(proxied: pytest.MonkeyPatch) -> None:
    del proxied
    headers = {"Proxy-Authorization": "Basic bWU6c0BjcnQ="}
    assert find_proxy(address("https://api.example")) == Proxy("proxy.example", 3128, headers)


@pytest.mark.parametrize("url", ["http://api.example", "http://127.0.0.1:7700", "https://127.0.0.1:7700"])
def test_a_proxy_never_sees_a_key_nor_what_stays_on_the_machine(url: str, proxied: pytest.MonkeyPatch) -> None:
    del proxied
    assert find_proxy(address(url)) is None


def test_no_proxy_is_obeyed(proxied: pytest.MonkeyPatch) -> None:
    proxied.setenv("NO_PROXY", "api.example")
    assert find_proxy(address("https://api.example")) is None
    assert find_proxy(address("https://other.example")) is not None


def test_a_proxy_that_can_not_be_used_is_told_without_its_password(proxied: pytest.MonkeyPatch) -> None:
    proxied.setenv("HTTPS_PROXY", "https://me:hunter2@proxy.example")
    with pytest.raises(Failure, match="HTTPS_PROXY") as caught:
        find_proxy(address("https://api.example"))
    assert "hunter2" not in caught.value.message


def test_a_proxy_may_be_named_without_a_scheme() -> None:
    assert parse_proxy("proxy.example:3128") == Proxy("proxy.example", 3128, {})


@pytest.mark.parametrize("url", ["https://b3os.example/device?code=AB", "http://127.0.0.1:7700/x", "http://[::1]/"])
def test_pages_are_opened(url: str) -> None:
    assert is_page(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://b3os.example/device",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "--new-window",
        "https://",
        "https://a.example/ --x",
        "https://a.example/\x1b[2J",
        "https://user@a.example/",
        "vscode://x",
    ],
)
def test_what_is_no_page_of_the_web_is_not_opened(url: str) -> None:
    assert not is_page(url)


def test_a_browser_needs_a_display() -> None:
    assert not has_browser({}, "linux")
    assert has_browser({"DISPLAY": ":0"}, "linux")
    assert has_browser({"WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert has_browser({}, "darwin")
    assert not has_browser({"SSH_CONNECTION": "x"}, "darwin")
    assert has_browser({"BROWSER": "firefox", "SSH_CONNECTION": "x"}, "linux")
