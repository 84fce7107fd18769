"""What is billed, by how far a request came. Pure.

Decides the rule: nothing before the prompt was computed, then the prompt and every token that was generated, whatever
ended it. Must not know where counts come from, nor where a bill goes. What the meter keeps is more in one case:
whoever leaves before the first token pays nothing, but his prompt was computed all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from node.limits.facts import running_record
from node.limits.limiter import Hold, Progress, Settlement, Subject
from shared.request_log import Outcome, RequestRecord


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended, as far as its node knows.

    Attributes:
        status: what the client was told, or 499 where it left before that.
    """

    outcome: Outcome
    status: int | None
    error_code: str | None = None
    stop_reason: str | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)


def build_settlement(
    hold: Hold, progress: Progress, ending: Ending, image_bytes: int, *, is_certain: bool = True
) -> Settlement:
    """The bill of a request whose node is alive; `is_certain` is whether it knows that the request was let in."""
    record = _ended(_counted(running_record(hold.subject), hold, progress, image_bytes), ending)
    metered = record.input_tokens + record.output_tokens
    if ending.outcome == "client_gone":  # else a prompt without an answer would cost neither money nor tokens
        metered = max(metered, progress.input_tokens)
    return Settlement(hold, record, is_certain=is_certain, metered_tokens=metered)


def build_abandoned(hold: Hold, progress: Progress, image_bytes: int) -> Settlement:
    """The bill of a request whose node is taken for dead: to the last count that it told."""
    record = replace(_counted(running_record(hold.subject), hold, progress, image_bytes), outcome="abandoned")
    return Settlement(hold, record, is_last_word=False)


def build_refused(subject: Subject, ending: Ending) -> RequestRecord:
    """The log's entry for a request that was not let in."""
    return _ended(running_record(subject), ending)


def _ended(record: RequestRecord, ending: Ending) -> RequestRecord:
    return replace(
        record,
        outcome=ending.outcome,
        status=ending.status,
        error_code=ending.error_code,
        stop_reason=ending.stop_reason,
        ttft_ms=ending.ttft_ms,
        total_ms=ending.total_ms,
        phases_ms=ending.phases_ms,
    )


def _counted(record: RequestRecord, hold: Hold, progress: Progress, image_bytes: int) -> RequestRecord:
    if not progress.has_prefilled:
        return replace(record, image_bytes=image_bytes)
    return replace(
        record,
        input_tokens=progress.input_tokens,
        output_tokens=progress.output_tokens,
        cached_tokens=progress.cached_tokens,
        image_bytes=image_bytes,
        cost_nano_usd=hold.subject.price.cost_nano_usd(progress.input_tokens, progress.output_tokens),
    )
