"""Does a finished answer keep what its guide promised?

Decides the last look before an answer is called a success: grammars make it hold, and this says so. It sees the same
pieces as the block machine, and must not know grammars or events.
"""

from __future__ import annotations

import orjson

from node.engine.port import End, Guide, Piece, Text, ToolArguments, ToolEnd, ToolStart
from node.schema.conformance import Conformance


class BrokenPromise(Exception):
    """An answer that doesn't match its schema, or calls nothing where a call was forced: a fault of ours."""


class Inspector:
    """Sees the pieces of one answer."""

    def __init__(self, guide: Guide) -> None:
        self._must_call, self._has_called = guide.must_call, False
        self._answer = None if guide.answer is None else Conformance(guide.answer.schema)
        self._inputs = {tool.name: Conformance(tool.schema.schema) for tool in guide.tools if guide.binds(tool)}
        self._text: list[str] = []
        self._name, self._arguments = "", list[str]()

    def see(self, piece: Piece) -> None:
        """Take note of a piece.

        Raises:
            BrokenPromise: it completes something that doesn't hold.
        """
        match piece:
            case Text(text) if self._answer is not None:
                self._text.append(text)
            case ToolStart(name=name):
                self._name, self._arguments = name, []
            case ToolArguments(json) if self._name in self._inputs:
                self._arguments.append(json)
            case ToolEnd():
                self._check_call()
            case End("stop"):
                self._check_end()
            case _:
                pass

    def _check_call(self) -> None:
        self._has_called = True
        expected = self._inputs.get(self._name)
        if expected is not None and not _holds(expected, self._arguments):
            raise BrokenPromise("a tool's input doesn't match its schema")
        if self._must_call and expected is None:
            raise BrokenPromise("a forced call chose another tool")

    def _check_end(self) -> None:
        if self._must_call and not self._has_called:
            raise BrokenPromise("a forced call is missing")
        if self._answer is not None and not self._has_called and not _holds(self._answer, self._text):
            raise BrokenPromise("the answer doesn't match its schema")


def _holds(expected: Conformance, parts: list[str]) -> bool:
    try:
        return expected.holds(orjson.loads("".join(parts)))
    except orjson.JSONDecodeError:
        return False
