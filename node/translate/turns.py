"""The turns of a chat, as templates take them.

Decides how what follows each other becomes turns: one side's parts are one turn, results directly follow the calls
that they answer, and what can't stand between them comes after. Must not know the wire. Texts are joined once, at the
end: joined one by one, a long conversation would be copied again for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

BLOCK_SEPARATOR = "\n\n"


@dataclass(slots=True)
class _Turn:
    """One turn in the making: its parts are runs of texts, and pictures between them."""

    role: str
    parts: list[Any] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    call_id: str | None = None

    def add_text(self, text: str) -> None:
        """Text after text is one text."""
        if not self.parts or not isinstance(self.parts[-1], list):
            self.parts.append([])
        self.parts[-1].append(text)

    def as_message(self) -> dict[str, Any]:
        """The turn for a template; one with a picture has a list for its content."""
        message: dict[str, Any] = {"role": self.role}
        if self.call_id is not None:
            message["tool_call_id"] = self.call_id
        if all(isinstance(part, list) for part in self.parts):
            message["content"] = _join(self.parts[0]) if self.parts else ""
        else:
            message["content"] = list(self._contents())
        if self.thinking:
            message["reasoning_content"] = _join(self.thinking)
        if self.calls:
            message["tool_calls"] = self.calls
        return message

    def _contents(self) -> Iterable[dict[str, Any]]:
        for part in self.parts:
            if not isinstance(part, list):
                yield {"type": "image", "image": part}
            elif text := _join(part):
                yield {"type": "text", "text": text}


@dataclass(frozen=True, slots=True)
class _Picture:
    """What is shown; `follows` says that it belongs to a result."""

    image: Any
    follows: bool


@dataclass(frozen=True, slots=True)
class _Words:
    """What is said; `waits` says that it can't stand between calls and their results."""

    text: str
    waits: bool


class Turns:
    """Collects turns in order."""

    def __init__(self, system: Iterable[str]) -> None:
        self._turns = [_Turn("system", [[text]]) for text in system]
        self._said: list[
            _Words | _Picture | _Turn
        ] = []  # by the user's side since the last answer; turns are results

    def say(self, text: str) -> None:
        """The user's text."""
        self._said.append(_Words(text, waits=False))

    def show(self, image: Any) -> None:
        """The user's picture."""
        self._said.append(_Picture(image, follows=False))

    def remind(self, text: str) -> None:
        """A system turn in the middle of the conversation.

        It stays in its place: at the top it would change the prompt's head, and with it the whole prefix cache, and
        many templates refuse a second system turn.
        """
        self._said.append(_Words(text, waits=True))

    def report(self, call_id: str, text: str, images: Sequence[Any]) -> None:
        """The result of a call. Few templates take pictures in it, so that they follow on the user's side."""
        self._said.append(_Turn("tool", [[text]], call_id=call_id))
        self._said += [_Picture(image, follows=True) for image in images]

    def answer(self, *, text: str = "", thinking: str = "", call: dict[str, Any] | None = None) -> None:
        """A part of the assistant's turn; a turn without any part is none, since templates refuse empty ones."""
        if not (text or thinking or call):
            return
        self._end_user_side()
        turn = self._turn_of("assistant")
        if text:
            turn.add_text(text)
        if thinking:
            turn.thinking.append(thinking)
        if call is not None:
            turn.calls.append(call)

    def finish(self) -> list[dict[str, Any]]:
        """All turns."""
        self._end_user_side()
        return [turn.as_message() for turn in self._turns]

    def _end_user_side(self) -> None:
        """Results first come, first told; reminders and the results' pictures wait until the last result is told."""
        said, self._said = self._said, []
        left = sum(isinstance(part, _Turn) for part in said)
        waiting: list[_Words | _Picture] = []
        for part in said:
            if isinstance(part, _Turn):
                self._turns.append(part)
                left -= 1
                if not left:
                    for late in waiting:
                        self._add(late)
            elif left and (part.waits if isinstance(part, _Words) else part.follows):
                waiting.append(part)
            else:
                self._add(part)

    def _add(self, part: _Words | _Picture) -> None:
        turn = self._turn_of("user")
        if isinstance(part, _Words):
            turn.add_text(part.text)
        else:
            turn.parts.append(part.image)

    def _turn_of(self, role: str) -> _Turn:
        """The last turn, if it is of this side, else a new one."""
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]


def _join(texts: list[str]) -> str:
    """With blank lines between; what is empty needs none."""
    return BLOCK_SEPARATOR.join(filter(None, texts))
