"""The refusals of requests over the network: no token, a wrong one, a small role, another queue, too many."""

from __future__ import annotations

from limpet.core.errors import LimpetError


class AccessError(LimpetError):
    """The caller may not do this."""

    code = "access"


class TokenRequired(AccessError):
    """The request has no token, and is not one that needs none."""

    code = "token_required"


class TokenInvalid(AccessError):
    """The token is unknown, revoked or expired."""

    code = "token_invalid"


class Forbidden(AccessError):
    """The caller's role does not allow the action."""

    code = "forbidden"


class OutOfScope(AccessError):
    """The token is for other queues."""

    code = "out_of_scope"


class TooManyRequests(AccessError):
    """The token has made more requests than its rate allows; more are answered after `retry_after_s`."""

    code = "too_many_requests"

    def __init__(self, message: str, *, fix: str = "", retry_after_s: float = 0) -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s


class TooManyWaiting(TooManyRequests):
    """As many requests wait at this server as it allows; there may be room after `retry_after_s`."""

    code = "too_many_waiting"
