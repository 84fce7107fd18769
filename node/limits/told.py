"""What a caller hears of a limit: the refusal of each outcome, and the headers.

Decides conditions and words, which agents act on: the limit, the model and the seconds. Must not know how limits are
counted.
"""

from __future__ import annotations

from typing import assert_never

from node.limits.limiter import (
    Adjusted,
    Adjustment,
    Admitted,
    AlreadySettled,
    CapReached,
    Charge,
    Charged,
    ConcurrencyLimited,
    Lost,
    NeverFits,
    RateLimited,
    Refusal,
    Subject,
    Unavailable,
)
from shared.errors import (
    BACKEND_UNAVAILABLE,
    CONCURRENCY_LIMITED,
    INVALID_REQUEST,
    RATE_LIMITED,
    SPEND_CAP_REACHED,
    TOKEN_REUSED,
    ApiError,
    retry_in,
)

_UNITS = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "image_bytes_per_minute": "bytes of remote images a minute",
    "concurrent_requests": "requests at once",
}
_PERIODS = {"day": "for this day (UTC)", "month": "for this month (UTC)", "total": "in all"}
_RETRY_AFTER_S = 1
Outcome = Refusal | Lost


def build_refusal(outcome: Outcome, subject: Subject, *, param: str | None = None) -> ApiError:
    """The refusal of an outcome; `param` is the field to blame, where there is one."""
    match outcome:
        case RateLimited(name, limit, remaining, retry_after_s, reset_s):
            words = f"the organization's limit of {limit} {_UNITS[name]} for {subject.model} is reached"
            message = f"{words}; {retry_in(retry_after_s)}"
            headers = _headers(limit, remaining, reset_s)
            return ApiError(RATE_LIMITED, message, param=param, retry_after_s=retry_after_s, headers=headers)
        case ConcurrencyLimited(limit, running, retry_after_s):
            words = f"the organization's limit of {limit} requests at once is reached"
            message = f"{words}; {retry_in(retry_after_s)}, or when one of them has ended"
            headers = _headers(limit, max(0, limit - running), retry_after_s)
            return ApiError(CONCURRENCY_LIMITED, message, retry_after_s=retry_after_s, headers=headers)
        case CapReached(cap, _, _):
            message = f"the API key's spend cap {_PERIODS[cap.period]} would be passed by what this request may cost"
            return ApiError(SPEND_CAP_REACHED, message)
        case NeverFits(name, 0, _):
            of = "" if name == "concurrent_requests" else f" for {subject.model}"
            return ApiError(INVALID_REQUEST, f"the organization's limit of {_UNITS[name]}{of} is 0", param=param)
        case NeverFits(name, limit, needed):
            words = f"this request needs {needed} {_UNITS[name].removesuffix(' a minute')} at once"
            message = f"{words}, more than the organization's limit of {limit} a minute for {subject.model}"
            return ApiError(INVALID_REQUEST, message, param=param or _blamed(name))
        case AlreadySettled():
            return ApiError(TOKEN_REUSED, "this token was used before")
        case Lost():
            return ApiError(BACKEND_UNAVAILABLE, "the request's reservation is lost", retry_after_s=_RETRY_AFTER_S)
        case Unavailable():
            return ApiError(
                BACKEND_UNAVAILABLE, "limits can't be checked at the moment", retry_after_s=_RETRY_AFTER_S
            )
        case _:
            assert_never(outcome)


def require_adjusted(outcome: Adjustment, subject: Subject) -> None:
    """Pass only what was adjusted.

    Raises:
        ApiError: anything else.
    """
    if not isinstance(outcome, Adjusted):
        raise build_refusal(outcome, subject)


def require_charged(outcome: Charge, subject: Subject) -> None:
    """Pass only what was charged.

    Raises:
        ApiError: anything else.
    """
    if not isinstance(outcome, Charged):
        raise build_refusal(outcome, subject)


def build_headers(admitted: Admitted) -> dict[str, str]:
    """The requests meter's headers, if there is such a limit."""
    if admitted.limit is None or admitted.remaining is None or admitted.reset_s is None:
        return {}
    return _headers(admitted.limit, admitted.remaining, admitted.reset_s)


def _headers(limit: int, remaining: int, reset_s: int) -> dict[str, str]:
    named = {"Limit": limit, "Remaining": remaining, "Reset": reset_s}
    return {f"RateLimit-{name}": str(value) for name, value in named.items()}


def _blamed(name: str) -> str | None:
    """A request that is too large as a whole has a shorter answer as its way out."""
    return "max_tokens" if name == "tokens_per_minute" else None
