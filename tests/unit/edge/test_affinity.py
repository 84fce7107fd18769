"""What is read of a body without reading it: the same for all turns of a conversation, and never a fault."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from edge.affinity import Affinity, read_affinity
from shared.model_name import WINDOW_BYTES

CLIENTS = Path(__file__).parents[2] / "contract" / "clients"


def of(body: object, org: str = "acme") -> Affinity:
    return read_affinity(org, json.dumps(body).encode())


def recorded() -> dict[str, list[Affinity]]:
    """By conversation, of every client that was recorded, in two ways of writing JSON."""
    found: dict[str, list[Affinity]] = defaultdict(list)
    for path in sorted(CLIENTS.glob("*.json")):
        body = json.loads(path.read_text()).get("body")
        if isinstance(body, dict) and "messages" in body:
            opening = json.dumps([body.get("system"), [_texts(body["messages"][0])]])
            for raw in (json.dumps(body), json.dumps(body, separators=(",", ":"), ensure_ascii=False)):
                affinity = read_affinity("acme", raw.encode())
                assert affinity.models[0] == body["model"], path.name
                found[opening].append(affinity)
    return found


def _texts(message: dict[str, object]) -> list[object]:
    content = message["content"]
    return [block.get("text") for block in content] if isinstance(content, list) else [content]


def test_every_recorded_client_keeps_its_key_from_turn_to_turn() -> None:
    conversations = recorded()
    assert sum(len(turns) > 2 for turns in conversations.values()) > 8
    for opening, turns in conversations.items():
        assert len({turn.key for turn in turns}) == 1, opening[:200]


def message(text: object) -> dict[str, object]:
    return {"role": "user", "content": text}


def test_a_mark_for_the_cache_that_moves_on_changes_nothing() -> None:
    block = {"type": "text", "text": "Fix the bug"}
    first = of({"model": "m", "messages": [message([{**block, "cache_control": {"type": "ephemeral"}}])]})
    later = of({"model": "m", "messages": [message([block]), message("x"), message("y")]})
    assert first.key == later.key


def test_organization_system_and_opening_tell_conversations_apart() -> None:
    usual = {"model": "m", "system": "You help", "messages": [message("Hi")]}
    keys = {
        of(usual).key,
        of(usual, "other").key,
        of({**usual, "system": "You don't"}).key,
        of({**usual, "system": [{"type": "text", "text": "You do"}]}).key,
        of({**usual, "messages": [message("Ho")]}).key,
        of({**usual, "messages": [message([{"type": "text", "text": "H"}, {"type": "text", "text": "i"}])]}).key,
    }
    assert len(keys) == 6


@pytest.mark.parametrize("is_first", [True, False])
def test_what_stands_before_or_behind_a_long_conversation_is_found(is_first: bool) -> None:
    turns = [message("Look"), *[message("x" * 1000)] * 500]
    ends = {"system": "You help", "model": "b3os/a"}
    body = {**ends, "messages": turns} if is_first else {"messages": turns, **ends}
    short = {**ends, "messages": turns[:1]}
    assert of(body) == of(short)


def test_a_first_message_that_is_too_long_is_known_by_its_beginning() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 3 * WINDOW_BYTES}}
    first = [message([image, {"type": "text", "text": "What is it?"}])]
    assert of({"messages": first, "model": "m"}) == of({"messages": [*first, message("x")], "model": "m"})


def test_names_are_read_as_json_reads_them_and_the_first_comes_first() -> None:
    assert read_affinity("o", rb'{"model":"b3os\/a","x":{"model" : "b"}}').models == ("b3os/a", "b")
    assert read_affinity("o", rb'{"text":"\"model\":\"no\"","model":"yes"}').models == ("yes",)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"null", b"\xff\xfe", b'{"model":"', b'{"model":"\\ud800"}', b'{"model":"\\x"}', b'{"messages":['),
        *(b'{"messages":[[1]],"model":3}', b'{"messages":[{"content":[1,null,{"text":2}]}]}'),
        *(b'{"messages":[' + b"[" * 200_000, b'{"messages":[{"a":' * 20_000, b'"model":"' * 200_000),
        *(b'{"messages":[' + b"9" * 50_000 + b"]}", b'{"messages":[{"content":"\\ud800"}],"model":"m"}'),
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_no_body_is_a_fault(raw: bytes) -> None:
    assert isinstance(read_affinity("acme", raw), Affinity)
