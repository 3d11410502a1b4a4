"""The refusals of requests that cannot be read, or that ask for what there is not; those of access are in `core`."""

from __future__ import annotations

from limpet.core.errors import UsageError


class InvalidRequest(UsageError):
    """A query parameter or a field of the body is unknown, missing, or of the wrong kind."""

    code = "invalid_request"


class MalformedBody(UsageError):
    """The body is not JSON."""

    code = "malformed_body"


class UnsupportedMediaType(UsageError):
    """The body is declared as something else than JSON."""

    code = "unsupported_media_type"


class BodyTooLarge(UsageError):
    """The body is larger than the route takes."""

    code = "body_too_large"


class BodyTooSlow(UsageError):
    """The body did not come within its time; the connection is closed."""

    code = "body_too_slow"


class NoSuchRoute(UsageError):
    """There is nothing at this path."""

    code = "no_such_route"


class MethodNotAllowed(UsageError):
    """The path has no such method; `allowed` are those that it has."""

    code = "method_not_allowed"

    def __init__(self, message: str, *, fix: str = "", allowed: str = "") -> None:
        super().__init__(message, fix=fix)
        self.allowed = allowed


class KeyReused(UsageError):
    """The Idempotency-Key was sent before, with another request."""

    code = "idempotency_key_reused"


class KeyInUse(UsageError):
    """A request with this Idempotency-Key is not answered yet; it is taken for dead after `retry_after_s`."""

    code = "idempotency_key_in_use"

    def __init__(self, message: str, *, fix: str = "", retry_after_s: float = 0) -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s


class RecordChanged(UsageError):
    """The record is not as If-Match says; nothing was changed."""

    code = "record_changed"


class AnswerNotKept(UsageError):
    """The request with this Idempotency-Key was done; its answer was too long to be kept."""

    code = "answer_not_kept"
