"""What a model writes, to the pieces that a caller sees.

Decides where thinking, text and calls begin and end, and that none of their markers is ever shown:

- Thinking ends at its marker, or at a call: Qwen3.5 calls before it closes. The marker that a thinking budget forces
  may then land inside the call, and is taken out of it; that is the first one after such a call began.
- What stands in call tags but doesn't begin like a call is thinking or text, as what surrounds it. So is all of it
  where no call is expected.
- Either form of call is read, whichever the model was taught: its first character tells. Where the form is Qwen's, a
  call of a known tool without the tag around it counts, since Qwen3-Coder forgets that.
- A tag may hold several calls, and may lack its end.

Must not know the inside of a call, nor tokens. The cost of a piece does not depend on what came before it. Held: what
may become a marker, the names in a call, and what `prose.py`, `hermes.py` and `qwen_xml.py` say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from node.engine.dialect.hermes import HermesCall
from node.engine.dialect.prose import Prose
from node.engine.dialect.qwen_xml import XmlCall, name_at
from node.engine.dialect.scan import Markers, word_at
from node.engine.dialect.spec import CALL, CALL_END, FUNCTION, BrokenCall, Dialect, unfinished
from node.engine.port import End, Piece, Tool

_BLANK = re.compile(r"[ \t\r\n]*+")
_BEFORE_CALL = re.compile(r"[ \t\r\n\[]*+")  # a list of calls counts as the calls
_BETWEEN_CALLS = re.compile(r"[ \t\r\n,\[\]}]*+")  # and a brace too many is none


class Splitter:
    """Makes the pieces of one answer.

    Args:
        begins_thinking: the prompt ends inside thinking.
        tools: the functions that may be called; none means that no call is expected.
        one_call: the answer is over with its first call.
    """

    def __init__(
        self,
        *,
        dialect: Dialect,
        begins_thinking: bool,
        tools: Sequence[Tool],
        one_call: bool,
        new_call_id: Callable[[], str],
    ) -> None:
        self.ended = False
        """Whether the answer is over, although the model may go on."""
        self._one_call, self._new_call_id = one_call, new_call_id
        self._schemas = {tool.name: tool.schema.schema for tool in tools} if dialect.tools else {}
        self._begin, self._end = dialect.thinking or ("", "")
        words = (self._end,) if dialect.thinking else ()
        tags = (CALL, CALL_END) if dialect.tools else ()
        bare = (FUNCTION,) if dialect.tools == "qwen3_coder" and self._schemas else ()
        self._in_thinking = Markers((*words, *tags))
        self._in_text = Markers((*words, *tags, *bare))
        self._has_markers = bool(words or tags)
        self._prose = Prose(may_call=bool(self._schemas))
        self._thinks = begins_thinking and dialect.thinks  # or would, if it weren't in a call's tag
        self._mode: Literal["start", "prose", "tag", "call", "after call"] = "start" if dialect.thinks else "prose"
        self._call: HermesCall | XmlCall = HermesCall(new_call_id)  # another one by the time that it is fed
        self._held = ""
        self._gap: list[str] = []  # white space that may be dropped
        self._late = Markers(words)
        self._awaits_late_end = False  # thinking ended at a call, so its marker is still to come
        self._maybe_end = ""  # what may become that marker
        self._fault: BrokenCall | None = None
        self._out: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """The pieces that follow from more text.

        Raises:
            BrokenCall: an earlier text broke a call. The pieces before the fault were returned then.
        """
        if self._fault:
            raise self._fault
        if self.ended or not text:
            return []
        if self._awaits_late_end:
            text = self._without_late_end(text)
        if self._mode == "prose" and not self._held and ("<" not in text or not self._has_markers):
            return self._show(text)
        self._held += text
        try:
            self._advance()
        except BrokenCall as fault:
            self._fault = fault
        pieces, self._out = self._out, []
        return pieces

    def finish(self, reason: Literal["stop", "length"]) -> list[Piece]:
        """The last pieces, with the answer's end.

        Raises:
            BrokenCall: a call is broken, or the model ended by itself inside one.
        """
        if self._maybe_end:  # is none
            self._awaits_late_end, text, self._maybe_end = False, self._maybe_end, ""
            self._out = self.feed(text)
        if self._fault:
            raise self._fault
        if not self.ended:
            self._finish(reason)
        return [*self._out, End("stop" if self.ended else reason)]

    def _finish(self, reason: Literal["stop", "length"]) -> None:
        match self._mode:
            case "start" | "prose":
                self._out += self._show("".join(self._gap) + self._held)
            case "tag" if self._held and reason == "stop":
                raise unfinished()
            case "call" if reason == "stop":
                self._call.finish(self._out)
        self._out += self._prose.end()

    def _advance(self) -> None:
        """Read what is held as far as it is sure."""
        at = 0
        try:
            while at < len(self._held):
                mode, moved = self._mode, at
                match mode:
                    case "start":
                        moved = self._read_start(at)
                    case "prose":
                        moved = self._read_prose(at)
                    case "tag":
                        moved = self._read_tag(at)
                    case "call":
                        moved = self._read_call(at)
                    case "after call":
                        moved = self._read_after_call(at)
                if moved == at and mode == self._mode:
                    break
                at = moved
        finally:
            self._held = self._held[at:]

    def _show(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._prose.thinking(text) if self._thinks else self._prose.text(text)

    def _read_start(self, at: int) -> int:
        """Some models write the marker that begins thinking, some find it in the prompt."""
        if gap := _BLANK.match(self._held, at):
            self._gap.append(gap.group())
            at = gap.end()
        if at == len(self._held):
            return at
        word = word_at(self._held, at, (self._begin,))
        if word == "":
            return at
        if word:
            self._thinks = True
        else:
            self._out += self._show("".join(self._gap))
        self._mode, self._gap = "prose", []
        return at + len(word or "")

    def _read_prose(self, at: int) -> int:
        markers = self._in_thinking if self._thinks else self._in_text
        found = markers.find(self._held, at)
        end = found[0] if found else markers.hold_from(self._held, at)
        self._out += self._show(self._held[at:end])
        if found is None:
            return end
        start, word = found
        if word == FUNCTION:
            return self._read_bare_function(start)
        if word == self._end:
            self._end_thinking()
        elif word == CALL and self._schemas:
            self._mode, self._gap = "tag", []
        return start + len(word)

    def _end_thinking(self) -> None:
        self._thinks = False
        self._prose.end_thinking()

    def _read_bare_function(self, at: int) -> int:
        end = at + len(FUNCTION)
        try:
            found = name_at(self._held, end)
        except BrokenCall:
            found = ("", end)
        if found is None:
            return at
        if found[0] in self._schemas:
            self._begin_call(XmlCall(self._schemas, self._new_call_id), end)
        else:
            self._out += self._show(FUNCTION)
        return end

    def _read_tag(self, at: int) -> int:
        """What stands behind a call's tag: a call, or prose after all."""
        if gap := _BEFORE_CALL.match(self._held, at):
            self._gap.append(gap.group())
            at = gap.end()
        if at == len(self._held):
            return at
        if self._held[at] == "{":
            self._begin_call(HermesCall(self._new_call_id), at)
            return at
        late = (self._end,) if self._thinks else ()
        word = word_at(self._held, at, (FUNCTION, CALL, *late))
        if word == FUNCTION:
            self._begin_call(XmlCall(self._schemas, self._new_call_id), at + len(word))
        elif word == self._end and word:
            self._end_thinking()
        elif word is None:
            self._out += self._show("".join(self._gap))
            self._mode, self._gap = "prose", []
        return at + len(word or "")

    def _begin_call(self, call: HermesCall | XmlCall, at: int) -> None:
        self._prose.begin_call()
        self._call, self._mode, self._gap = call, "call", []
        if self._thinks:
            self._thinks, self._awaits_late_end = False, True
            self._held = self._held[:at] + self._without_late_end(self._held[at:])

    def _without_late_end(self, text: str) -> str:
        text = self._maybe_end + text
        if found := self._late.find(text, 0):
            self._awaits_late_end, self._maybe_end = False, ""
            return text[: found[0]] + text[found[0] + len(self._end) :]
        hold = self._late.hold_from(text, 0)
        self._maybe_end = text[hold:]
        return text[:hold]

    def _read_call(self, at: int) -> int:
        at = self._call.feed(self._held, at, self._out)
        if self._call.is_over:
            self._mode = "after call"
            if self._one_call:
                self.ended = True
                return len(self._held)
        return at

    def _read_after_call(self, at: int) -> int:
        """What stands behind a call: the end of its tag, another call, or text although the tag has no end."""
        if gap := _BETWEEN_CALLS.match(self._held, at):
            at = gap.end()
        if at == len(self._held):
            return at
        if self._held[at] == "{":
            self._begin_call(HermesCall(self._new_call_id), at)
            return at
        word = word_at(self._held, at, (CALL_END, CALL, FUNCTION))
        if word == FUNCTION:
            self._begin_call(XmlCall(self._schemas, self._new_call_id), at + len(word))
        elif word == CALL:
            self._mode, self._gap = "tag", []
        elif word != "":
            self._mode = "prose"
        return at + len(word or "")
