"""`b3os chat` against a played server: what it sends, and how it takes every end of an answer."""

from __future__ import annotations

import base64
import json
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.cli.user.failure import FAILED, INTERRUPTED, NOT_LOGGED_IN, TRY_LATER, UNREACHABLE, USAGE
from tests.integration.cli.conftest import Cli
from tests.integration.cli.played import EVENT_STREAM, PlayedServer, Reply, answer, as_json, events, streamed

MESSAGES, MODELS = "/v1/infer/v1/messages", "/v1/infer/models"
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20
ERROR = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "the node was lost"},
    "request_id": "req_lost",
    "b3os": {"code": "node_unavailable"},
}


@pytest.fixture(autouse=True)
def service(server: PlayedServer) -> None:
    """It serves one model, which says little."""
    server.routes["GET", MODELS] = as_json({"data": [{"id": "b3os/only"}]})
    server.routes["POST", MESSAGES] = streamed(*answer("Hel", "lo."))


def sent(server: PlayedServer) -> Any:
    (body,) = server.bodies(MESSAGES)
    return body


def test_the_answer_is_written_as_it_is_and_ends_its_line(cli: Cli, server: PlayedServer) -> None:
    ran = cli.run("chat", "Hi")
    assert (ran.code, ran.out, ran.err) == (0, "Hello.\n", "")
    assert sent(server) == {
        "model": "b3os/only",
        "max_tokens": 4096,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_an_answer_that_ends_its_line_gets_no_second_end(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer("a\n", "b\n"))
    assert cli.run("chat", "Hi").out == "a\nb\n"


def test_options_are_sent(cli: Cli, server: PlayedServer) -> None:
    arguments = ["--model", "b3os/x", "--system", "Be brief.", "--max-tokens", "7", "--temperature", "0"]
    assert cli.run("chat", *arguments, "Hi").code == 0
    body = sent(server)
    assert (body["model"], body["system"], body["max_tokens"], body["temperature"]) == ("b3os/x", "Be brief.", 7, 0)
    assert [seen.path for seen in server.seen] == [MESSAGES]


def test_thinking_leaves_room_for_the_answer_and_stays_out_of_a_pipe(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer({"type": "thinking_delta", "thinking": "Hm."}, "Hi."))
    assert cli.run("chat", "--thinking", "2000", "Hi").out == "Hi.\n"
    body = sent(server)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert body["max_tokens"] > 2000


@pytest.mark.parametrize("served", [[], [{"id": "a"}, {"id": "b"}], None])
def test_one_of_several_models_has_to_be_named(cli: Cli, server: PlayedServer, served: object) -> None:
    server.routes["GET", MODELS] = as_json({"data": served})
    ran = cli.run("chat", "Hi")
    assert ran.code == USAGE
    assert "--model" in ran.err


def test_images_stand_before_the_text(cli: Cli, server: PlayedServer, tmp_path: Path) -> None:
    picture = tmp_path / "picture.txt"
    picture.write_bytes(PNG)
    url = "https://pictures.example/a.png"
    assert cli.run("chat", "--image", str(picture), "--image", url, "What is it?").code == 0
    assert sent(server)["messages"][0]["content"] == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
        },
        {"type": "image", "source": {"type": "url", "url": url}},
        {"type": "text", "text": "What is it?"},
    ]


@pytest.mark.parametrize("content", [None, b"", b"%PDF-1.7", b"<svg/>"])
def test_what_is_no_image_is_not_sent(cli: Cli, server: PlayedServer, tmp_path: Path, content: bytes | None) -> None:
    picture = tmp_path / "picture.png"
    if content is not None:
        picture.write_bytes(content)
    ran = cli.run("chat", "--image", str(picture), "What is it?")
    assert ran.code == USAGE
    assert "picture.png" in ran.err
    assert server.bodies(MESSAGES) == []


@pytest.mark.parametrize(
    ("arguments", "text"), [(["-"], "from stdin é"), ([], "from stdin é"), (["Sum up:"], "Sum up:\n\nfrom stdin é")]
)
def test_a_pipe_is_the_question_or_goes_with_it(
    cli: Cli, server: PlayedServer, arguments: list[str], text: str
) -> None:
    process = cli.start("chat", *arguments, stdin=subprocess.PIPE)
    ran = cli.finish(process, "from stdin é")
    assert ran.code == 0, ran.err
    assert sent(server)["messages"][0]["content"] == [{"type": "text", "text": text}]


def test_a_file_is_a_pipe_too_and_an_empty_one_adds_nothing(cli: Cli, server: PlayedServer, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with empty.open() as file:
        assert cli.finish(cli.start("chat", "Hi", stdin=file)).code == 0
    assert sent(server)["messages"][0]["content"] == [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize("arguments", [[], ["-"], [" "]])
def test_no_question_is_no_request(cli: Cli, server: PlayedServer, arguments: list[str]) -> None:
    ran = cli.run("chat", *arguments)
    assert ran.code == USAGE
    assert "no question" in ran.err
    assert server.seen == []


def test_a_pipe_of_bytes_is_no_question(cli: Cli, server: PlayedServer, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\x00")
    with file.open() as opened:
        ran = cli.finish(cli.start("chat", "-", stdin=opened))
    assert ran.code == USAGE
    assert "not UTF-8" in ran.err


def test_closed_streams_are_no_fault(cli: Cli, server: PlayedServer) -> None:
    program = " ".join(shlex.quote(part) for part in cli.command("chat", "Hi"))
    for closed, out in {"<&-": "Hello.\n", "<&- >&-": ""}.items():
        ran = cli.finish(cli.start(command=["sh", "-c", f"exec {program} {closed}"]))
        assert (ran.code, ran.out, ran.err) == (0, out, "")
    assert len(server.bodies(MESSAGES)) == 2


def test_usage_is_told_beside_the_answer(cli: Cli) -> None:
    ran = cli.run("chat", "--usage", "Hi")
    assert (ran.out, ran.err) == ("Hello.\n", "tokens: 3 input, 5 output; 1.2 s\n")


def test_json_is_every_event_in_a_line_of_its_own(cli: Cli, server: PlayedServer) -> None:
    played = [*answer("a\x1b[2J\x7f", {"type": "future_delta", "x": 1}), {"type": "never read"}]
    server.routes["POST", MESSAGES] = streamed(played[0], {"type": "ping"}, {"type": "future"}, *played[1:])
    ran = cli.run("chat", "--json", "Hi")
    assert ran.lines == [played[0], {"type": "ping"}, {"type": "future"}, *played[1:-1]]
    assert not {"\x1b", "\x7f"} & set(ran.out)


def test_an_early_end_is_told(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer("Hel", stop_reason="max_tokens"))
    ran = cli.run("chat", "Hi")
    assert (ran.code, ran.out) == (0, "Hel\n")
    assert "ended early: max_tokens" in ran.err


@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_the_answer_is_the_same_whatever_the_chunks(
    cli: Cli, server: PlayedServer, size: int, newline: bytes
) -> None:
    raw = b"".join(events(*answer("é", "👩‍💻 ", "\n x"))).replace(b"\n", newline)
    chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
    server.routes["POST", MESSAGES] = Reply(headers=EVENT_STREAM, chunks=chunks)
    assert cli.run("chat", "Hi").out == "é👩‍💻 \n x\n"


def test_a_pipe_gets_the_answer_untouched_but_for_what_no_encoding_holds(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer("\x1b[31mred\x1b[0m\n", "\ud800"))
    assert cli.run("chat", "Hi").out == "\x1b[31mred\x1b[0m\n?\n"


def test_an_error_event_is_a_sentence_and_a_code(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer("Hel")[:3], ERROR)
    ran = cli.run("chat", "Hi")
    assert (ran.code, ran.out) == (TRY_LATER, "Hel\n")
    assert ran.err == "Error: the node was lost (req_lost)\n"
    as_document = cli.run("chat", "--json", "Hi")
    assert (as_document.code, as_document.lines[-1]) == (TRY_LATER, ERROR)


@pytest.mark.parametrize(
    ("reply", "code", "out"),
    [
        (streamed(*answer("Hel")[:3]), UNREACHABLE, "Hel\n"),
        (Reply(headers=EVENT_STREAM, chunks=events(*answer("Hel")[:3]), breaks_off=True), UNREACHABLE, "Hel\n"),
        (Reply(headers=EVENT_STREAM, chunks=[*events(*answer("Hel")[:3]), b"data: {"]), UNREACHABLE, "Hel\n"),
        (Reply(headers=EVENT_STREAM, chunks=[]), UNREACHABLE, ""),
        (Reply(b"<html>welcome to our wifi", headers={"Content-Type": "text/html"}), UNREACHABLE, ""),
        (Reply(headers=EVENT_STREAM, chunks=[b"data: {\n\n"]), FAILED, ""),
        (Reply(headers=EVENT_STREAM, chunks=[b"data: [1]\n\n"]), FAILED, ""),
        (Reply(headers=EVENT_STREAM, chunks=[b"data: " + b"[" * 100_000 + b"\n\n"]), FAILED, ""),
        (Reply(headers=EVENT_STREAM, chunks=[b"data: " + b"x" * 2**20] * 17), UNREACHABLE, ""),
        (as_json({"error": {"message": "who?", "type": "authentication_error"}}, 401), NOT_LOGGED_IN, ""),
        (as_json({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, 429), TRY_LATER, ""),
        (as_json({"detail": "no"}, 402), FAILED, ""),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), UNREACHABLE, ""),
        (Reply(raw=b""), UNREACHABLE, ""),
    ],
    ids=range(14),
)
def test_every_bad_end_is_a_sentence_and_a_code(
    cli: Cli, server: PlayedServer, reply: Reply, code: int, out: str
) -> None:
    server.routes["POST", MESSAGES] = reply
    ran = cli.run("chat", "Hi")
    assert (ran.code, ran.out) == (code, out)
    assert ran.err.startswith("Error: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta"},
        {"type": "content_block_delta", "delta": "x"},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": {"a": 1}}},
        {"type": "content_block_delta", "delta": {"type": ["text_delta"], "text": "x"}},
        {"type": "message_delta", "delta": None, "usage": [], "b3os": {"timing": {"total_ms": "soon"}}},
        {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}},
        {"type": {}},
        {},
    ],
)
def test_events_of_other_shapes_say_nothing(cli: Cli, server: PlayedServer, event: dict[str, Any]) -> None:
    body = b"data: " + json.dumps(event).encode() + b"\n\n"
    server.routes["POST", MESSAGES] = Reply(headers=EVENT_STREAM, chunks=[body, *events(*answer("ok"))])
    ran = cli.run("chat", "--usage", "Hi")
    assert (ran.code, ran.out) == (0, "ok\n")


def test_an_interruption_stops_the_answer_and_says_so(cli: Cli, server: PlayedServer) -> None:
    interrupted = threading.Event()
    held: list[bytes | Callable[[], object]] = [*events(*answer("Hel")[:3]), interrupted.wait]
    server.routes["POST", MESSAGES] = Reply(headers=EVENT_STREAM, chunks=held)
    process = cli.start("chat", "Hi")
    assert process.stdout is not None
    assert process.stdout.read(3) == "Hel"
    process.send_signal(signal.SIGINT)
    try:
        ran = cli.finish(process)
    finally:
        interrupted.set()
    assert (ran.code, ran.out, ran.err.strip()) == (INTERRUPTED, "\n", "stopped")


def test_a_reader_that_goes_away_ends_the_command_without_a_word(cli: Cli, server: PlayedServer) -> None:
    gone = threading.Event()
    server.routes["POST", MESSAGES] = Reply(
        headers=EVENT_STREAM, chunks=[*events(*answer("Hel")[:3]), gone.wait, *events(*answer("lo")[2:])]
    )
    process = cli.start("chat", "Hi")
    assert process.stdout is not None
    assert process.stdout.read(3) == "Hel"
    process.stdout.close()
    gone.set()
    assert process.wait(60) == FAILED
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == ""


def test_why_an_answer_ended_early_is_told_in_one_line(cli: Cli, server: PlayedServer) -> None:
    server.routes["POST", MESSAGES] = streamed(*answer("Hel", stop_reason="a\nError: fake\u2028\x1b[2J"))
    told = cli.run("chat", "Hi").err
    assert len(told.splitlines()) == 1
    assert "\x1b" not in told


@pytest.mark.parametrize("total_ms", [10**400, -(10**400), True, None, "soon", [1]])
def test_a_time_that_can_not_be_reckoned_with_is_left_out(cli: Cli, server: PlayedServer, total_ms: object) -> None:
    documents = answer("ok")
    documents[-2]["b3os"] = {"timing": {"total_ms": total_ms}}
    server.routes["POST", MESSAGES] = streamed(*documents)
    ran = cli.run("chat", "--usage", "Hi")
    assert (ran.code, ran.out, ran.err) == (0, "ok\n", "tokens: 3 input, 5 output\n")
