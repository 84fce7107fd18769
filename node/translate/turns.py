"""The turns of a chat, as templates take them.

Decides how what follows each other becomes turns: one side's parts are one turn, results directly follow the calls
that they answer, and what can't stand between them comes after. Must not know the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

BLOCK_SEPARATOR = "\n\n"
Part = dict[str, Any]


class Turns:
    """Collects turns in order."""

    def __init__(self, system: Iterable[str]) -> None:
        self._turns: list[dict[str, Any]] = [{"role": "system", "content": text} for text in system]
        self._said: list[tuple[str, Any]] = []  # what the user's side said since the last answer, by kind

    def say(self, text: str) -> None:
        """The user's text."""
        self._said.append(("say", {"type": "text", "text": text}))

    def show(self, image: Any) -> None:
        """The user's picture."""
        self._said.append(("say", {"type": "image", "image": image}))

    def remind(self, text: str) -> None:
        """A system turn in the middle of the conversation.

        It stays in its place: at the top it would change the prompt's head, and with it the whole prefix cache, and
        many templates refuse a second system turn.
        """
        self._said.append(("remind", {"type": "text", "text": text}))

    def report(self, call_id: str, text: str, images: Sequence[Any]) -> None:
        """The result of a call. Few templates take pictures in it, so that they follow on the user's side."""
        self._said.append(("report", {"role": "tool", "tool_call_id": call_id, "content": text}))
        self._said += [("follow", {"type": "image", "image": image}) for image in images]

    def answer(self, *, text: str = "", thinking: str = "", call: Part | None = None) -> None:
        """A part of the assistant's turn; a turn without any part is none, since templates refuse empty ones."""
        if not (text or thinking or call):
            return
        self._end_user_side()
        if not self._turns or self._turns[-1]["role"] != "assistant":
            self._turns.append({"role": "assistant", "content": ""})
        turn = self._turns[-1]
        _append(turn, "content", text)
        if thinking:
            _append(turn, "reasoning_content", thinking)
        if call is not None:
            turn.setdefault("tool_calls", []).append(call)

    def finish(self) -> list[dict[str, Any]]:
        """All turns."""
        self._end_user_side()
        return self._turns

    def _end_user_side(self) -> None:
        """Results first come, first told; reminders and the results' pictures wait until the last result is told."""
        said, self._said = self._said, []
        results = [index for index, (kind, _) in enumerate(said) if kind == "report"]
        waiting: list[Part] = []
        for index, (kind, part) in enumerate(said):
            if kind == "report":
                self._turns.append(part)
                if index == results[-1]:
                    for late in waiting:
                        self._add_part(late)
                    waiting = []
            elif kind != "say" and results and index < results[-1]:
                waiting.append(part)
            else:
                self._add_part(part)

    def _add_part(self, part: Part) -> None:
        """Text after text is one text; a picture makes the content a list."""
        if not self._turns or self._turns[-1]["role"] != "user":
            self._turns.append({"role": "user", "content": ""})
        turn = self._turns[-1]
        content = turn["content"]
        if part["type"] == "text" and isinstance(content, str):
            _append(turn, "content", part["text"])
            return
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        turn["content"] = parts
        if part["type"] == "text" and parts and parts[-1]["type"] == "text":
            _append(parts[-1], "text", part["text"])
        elif part.get("text") != "":
            parts.append(part)


def _append(holder: dict[str, Any], field: str, text: str) -> None:
    before = holder.get(field, "")
    holder[field] = before + BLOCK_SEPARATOR + text if before and text else before + text
