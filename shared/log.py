"""JSON log lines that carry the request id.

Decides how long a line may be, and what an exception tells: within a request no message that may quote a caller. Must
not know what is logged. Callers pass facts through `extra={"facts": {...}}`; never prompts, answers or keys.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import orjson

LONGEST_MESSAGE = 2000
LONGEST_FACT = 1000
LONGEST_TRACEBACK = 16_000
MOST_FACTS = 40
MOST_EXCEPTIONS = 6
FIRST_FRAMES, LAST_FRAMES = 10, 20
_LONGEST_WORDS = 500
"""Of one exception."""
_LONGEST_FRAME = 500
_MARGIN = 4000
"""Characters beyond what is kept of a text, in which the beginning of a secret is looked for: ours are shorter."""
# Strangers write what this reads: whatever begins a match is within it to its end, so that nothing is read twice.
_SECRETS = re.compile(
    r"(b3os_(?:sk|pat)_)\w++"  # keys and tokens
    r"|(b3os_session=)[\w-]++"
    r"|(eyJ)[\w-]{8,}+[\w.-]*+"  # node tokens, and whatever else is JSON in base64
)
_QUOTES_NO_CALLER = (OSError, TypeError, AttributeError, NameError, ImportError, MemoryError, RecursionError)
"""Their messages speak of the machine, of types and of names of ours. Any other may quote a value."""
request_id_var: ContextVar[str | None] = ContextVar("request_id", default=None)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request id, facts, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        request_id = request_id_var.get()
        message = record.getMessage()
        if is_loop := record.name == "asyncio":  # it adds the repr of a task with its exception, whosever it was
            message = message.partition("\n")[0]
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(message, LONGEST_MESSAGE),
        }
        if request_id is not None:
            line["request_id"] = request_id
        facts = list(getattr(record, "facts", {}).items())[:MOST_FACTS]
        line.update((_cut(str(name), LONGEST_FACT), _bounded(value)) for name, value in facts)
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = render_exception(record.exc_info[1], tells_all=request_id is None and not is_loop)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def render_exception(error: BaseException, *, tells_all: bool) -> str:
    """An exception and those that led to it, the cause first, each with the first and the last of its frames.

    Args:
        tells_all: whether messages are told that may quote a caller.
    """
    parts = [
        "".join(_list_frames(each.__traceback__)) + _name(each, tells_all=tells_all) for each in _list_chain(error)
    ]
    return _cut("\n\nwhich led to\n\n".join(parts), LONGEST_TRACEBACK)


def _list_chain(error: BaseException) -> list[BaseException]:
    """The exception itself, and as many as are told of those before it and, of a group, within it."""
    found: list[BaseException] = []
    waiting: deque[BaseException | None] = deque([error])
    while waiting and len(found) < MOST_EXCEPTIONS:
        each = waiting.popleft()
        if each is None or any(each is known for known in found):
            continue
        found.append(each)
        waiting.append(each.__cause__ or (None if each.__suppress_context__ else each.__context__))
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions[:MOST_EXCEPTIONS])
    return found[::-1]


def _list_frames(trace: TracebackType | None) -> Iterator[str]:
    first: list[tuple[Any, int]] = []
    last: deque[tuple[Any, int]] = deque(maxlen=LAST_FRAMES)
    count = 0
    for frame in traceback.walk_tb(trace):
        count += 1
        if len(first) < FIRST_FRAMES:
            first.append(frame)
        else:
            last.append(frame)
    left_out = count - len(first) - len(last)
    yield from _render_frames(first)
    if left_out:
        yield f"  … {left_out} frames …\n"
    yield from _render_frames(last)


def _render_frames(frames: list[tuple[Any, int]] | deque[tuple[Any, int]]) -> Iterator[str]:
    for frame, line in frames:
        summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
        yield from (_cut(text, _LONGEST_FRAME) for text in traceback.StackSummary.from_list([summary]).format())


def _name(error: BaseException, *, tells_all: bool) -> str:
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if not (tells_all or isinstance(error, _QUOTES_NO_CALLER) or kind.__module__.startswith("redis.")):
        return f"{name} (its message may quote the request)"
    try:
        words = str(error)
    except Exception:
        words = "(no message)"
    return f"{name}: {_cut(words, _LONGEST_WORDS)}"


def _bounded(value: object) -> object:
    """A fact as it is, if it is short: a table with its own names, else the beginning and the end of its text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else _cut(hex(value), LONGEST_FACT)
    if isinstance(value, str):
        return _cut(value, LONGEST_FACT)
    try:
        raw = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return f"a {type(value).__name__} that JSON can't hold"
    text = _cut(raw, LONGEST_FACT)
    return value if text == raw else text


def _cut(text: str, longest: int) -> str:
    """The first and the last part of it, without secrets, as what UTF-8 can hold. No secret is cut in two."""
    if len(text) <= longest + 2 * _MARGIN:
        text = _mask(text)
        if len(text) <= longest:
            return text
    kept = longest // 2
    first, last = text[: kept + _MARGIN], text[-kept - _MARGIN :]
    begins = len(last) - kept
    for found in _SECRETS.finditer(last):
        if found.start() < begins < found.end():
            begins = found.end()
    return f"{_mask(first)[:kept]} … {len(text) - 2 * kept} characters … {_mask(last[begins:])}"


def _mask(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    if "b3os_" in text or "eyJ" in text:
        text = _SECRETS.sub(lambda found: f"{found[1] or found[2] or found[3]}…", text)
    return text


def set_up_logging(level: str = "INFO") -> None:
    """Send every logger's records to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("aiohttp.access").propagate = False  # shared/web.py writes one line per request
