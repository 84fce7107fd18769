"""The two refusals of a schema: what is no schema, and what can't be enforced."""

from __future__ import annotations

from shared.errors import INVALID_REQUEST, LONGEST_PARAM, UNSUPPORTED_PARAMETER, ApiError, safe_text


def unenforceable(path: str, what: str) -> ApiError:
    """A schema that this node can't keep a model to. `what` completes "this node can't enforce …"."""
    param = safe_text(path, LONGEST_PARAM)
    return ApiError(UNSUPPORTED_PARAMETER, f"{param}: this node can't enforce {what}", param=param)


def invalid(path: str, words: str) -> ApiError:
    """A schema that is none, or that nothing matches."""
    param = safe_text(path, LONGEST_PARAM)
    return ApiError(INVALID_REQUEST, f"{param}: {words}", param=param)
