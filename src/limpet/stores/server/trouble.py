"""Names the ways of not getting an answer that every server has, and makes the errors that tell of them."""

from __future__ import annotations

import asyncio
from typing import Any

from limpet.core.errors import StoreError, StoreTimeout, StoreUnreachable


class Lost(Exception):
    """The connection ended before the answer came. `sent` says whether the call may have arrived."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Silent(Exception):
    """The answer did not come in time."""


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """End a call with an error. A caller that went away meanwhile is no reason for a warning."""
    if not future.done():
        future.set_exception(error)
        future.exception()


def unsure(lost: BaseException, verb: str, where: object) -> StoreError:
    """The answer got lost and the verb must not be asked twice."""
    error = StoreUnreachable(
        f"the connection to {where} ended after the call was sent, so it may have happened ({lost})",
        verb=verb,
        fix="check whether the job was stored before you retry",
    )
    error.__cause__ = lost
    return error


def closed(verb: str, *, sent: bool) -> StoreError:
    """The store was closed while the call was under way."""
    after = "after the call was sent, so it may have happened" if sent else "before the call was sent"
    return StoreUnreachable(f"the store was closed {after}", verb=verb, fix="close it when no call waits for it")


def silent(cause: BaseException | None, verb: str, where: object, after_s: float, or_why: str = "") -> StoreError:
    """The call was sent, and its time is over. `or_why`: what else may hold up a server of this kind."""
    error = StoreTimeout(
        f"{where} did not answer within {after_s:g} s; the call may have happened all the same",
        verb=verb,
        fix=f"try again (the same job is stored once); see whether the server stands still{or_why}",
    )
    error.__cause__ = cause
    return error


def unreachable(
    cause: BaseException | None, verb: str, where: object, after_s: float | None, fix: str = ""
) -> StoreError:
    """Nothing was sent, and the time is over; or none is given to a refused connection."""
    reason = f" ({said(cause)})" if cause is not None else ""
    within = f" within {after_s:g} s" if after_s is not None else ""
    error = StoreUnreachable(
        f"{where} could not be reached{within}{reason}; nothing was sent",
        verb=verb,
        fix=fix or "see whether the server runs and the URL is right",
    )
    error.__cause__ = cause
    return error


def said(cause: BaseException) -> str:
    """What is known about a failed connection, for people."""
    words = getattr(cause, "strerror", None) or str(cause)
    if isinstance(cause, TimeoutError) and not words:
        return "no answer"
    return " ".join(words.split()) or type(cause).__name__
