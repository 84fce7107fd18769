"""The commands on a real terminal: colours where they are welcome, and nothing that a server could do to it."""

from __future__ import annotations

import os
import pty
import select
import signal
import threading
from dataclasses import dataclass

import pytest

from tests.integration.cli.conftest import WITHIN_S, Cli
from tests.integration.cli.played import EVENT_STREAM, PlayedServer, Reply, answer, as_json, events, streamed
from tests.integration.cli.test_login import BEGUN, GRANTED, SESSION

MESSAGES = "/v1/infer/v1/messages"
CHAT = ("chat", "--model", "m", "Hi")
THINKING = {"type": "thinking_delta", "thinking": "Hm\x1b[2J."}
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\rover\u202e\x7f"
TAMED = "␛]0;owned␇␛[2J\ufffd31mover\ufffd␡"


@dataclass
class OnTerminal:
    """A command whose stdin, stdout and stderr are one terminal."""

    cli: Cli

    def start(self, *arguments: str, **environ: str) -> None:
        """Begin; the test holds the other end."""
        self.screen, end = pty.openpty()
        here = {"TERM": "xterm-256color", "NO_COLOR": "", "PYTHONIOENCODING": "utf-8"}
        self.process = self.cli.start(*arguments, stdin=end, stdout=end, stderr=end, **{**here, **environ})
        os.close(end)
        self.shown = ""

    def read_until(self, words: str) -> None:
        """Wait until they are on the screen."""
        while words not in self.shown:
            assert self._read(), f"{words!r} never came: {self.shown!r}"

    def finish(self) -> tuple[int, str]:
        """Exit code and all that was shown, with the line ends that the program wrote."""
        while self._read():
            pass
        os.close(self.screen)
        return self.process.wait(WITHIN_S), self.shown.replace("\r\n", "\n")

    def _read(self) -> bool:
        ready, _, _ = select.select([self.screen], [], [], WITHIN_S)
        assert ready, f"the command hangs: {self.shown!r}"
        try:
            part = os.read(self.screen, 65_536)
        except OSError:  # Linux's word for the end of a terminal
            return False
        self.shown += part.decode()
        return bool(part)


@pytest.fixture
def terminal(cli: Cli) -> OnTerminal:
    return OnTerminal(cli)


def run(terminal: OnTerminal, *arguments: str, **environ: str) -> tuple[int, str]:
    terminal.start(*arguments, **environ)
    return terminal.finish()


def test_thinking_is_dimmed_and_stands_above_the_answer(terminal: OnTerminal, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer(THINKING, THINKING, "Hel", "lo."))
    shown = run(terminal, *CHAT, "--thinking", "1024")
    assert shown == (0, "\x1b[2mHm␛[2J.Hm␛[2J.\x1b[0m\n\nHello.\n")


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_a_word_says_what_thinking_is(
    terminal: OnTerminal, server: PlayedServer, environ: dict[str, str]
) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer(THINKING, "Hello."))
    assert run(terminal, *CHAT, **environ) == (0, "Thinking:\nHm␛[2J.\n\nHello.\n")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_can_not_drive_the_terminal(terminal: OnTerminal, server: PlayedServer, size: int) -> None:
    parts = [HOSTILE[at : at + size] for at in range(0, len(HOSTILE), size)]
    server.routes["POST", MESSAGES] = streamed(*answer(*parts))
    assert run(terminal, *CHAT) == (0, TAMED + "\n")


@pytest.mark.parametrize("command", [("models",), ("keys", "list"), ("whoami",)], ids=" ".join)
def test_names_can_not_drive_the_terminal(
    terminal: OnTerminal, server: PlayedServer, command: tuple[str, ...]
) -> None:
    document = as_json({"data": [{"id": HOSTILE, "name": HOSTILE}], "name": HOSTILE})
    server.routes |= {("GET", path): document for path in ("/v1/infer/models", "/v1/keys", "/v1/auth/session")}
    code, shown = run(terminal, *command)
    assert code == 0
    assert TAMED in shown
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e", "\x7f"} & set(shown)


def test_a_refusal_can_not_drive_the_terminal(terminal: OnTerminal, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = as_json({"error": {"message": HOSTILE}}, 400)
    assert run(terminal, *CHAT) == (1, f"Error: {TAMED}\n")


def test_json_is_ascii_on_a_terminal_too(terminal: OnTerminal, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer(HOSTILE))
    code, shown = run(terminal, *CHAT, "--json")
    assert code == 0
    assert shown.replace("\n", "").isprintable()
    assert shown.isascii()


def test_an_interruption_leaves_the_terminal_in_its_colours(terminal: OnTerminal, server: PlayedServer) -> None:
    interrupted = threading.Event()
    begun = events(*answer({"type": "thinking_delta", "thinking": "Hm"})[:3])
    server.routes["POST", MESSAGES] = Reply(headers=EVENT_STREAM, chunks=[*begun, interrupted.wait])
    terminal.start(*CHAT)
    terminal.read_until("Hm")
    terminal.process.send_signal(signal.SIGINT)
    try:
        shown = terminal.finish()
    finally:
        interrupted.set()
    assert shown == (130, "\x1b[2mHm\x1b[0m\n\nstopped\n")


def test_a_question_is_not_waited_for_on_a_terminal(terminal: OnTerminal, server: PlayedServer) -> None:
    code, shown = run(terminal, "chat")
    assert code == 2
    assert "no question" in shown
    assert server.seen == []


def test_a_login_on_a_terminal_without_a_display_only_shows_the_address(
    terminal: OnTerminal, server: PlayedServer
) -> None:
    server.routes = {
        ("POST", "/v1/auth/device/code"): as_json({**BEGUN, "interval": 1}),
        ("POST", "/v1/auth/device/token"): GRANTED,
        ("GET", "/v1/auth/session"): as_json(SESSION),
    }
    code, shown = run(terminal, "login", DISPLAY="", WAYLAND_DISPLAY="", BROWSER="")
    assert code == 0
    assert "BCDF-GHJK" in shown
    assert f"Logged in to {server.url}." in shown
