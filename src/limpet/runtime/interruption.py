"""Turns a soft timeout into TimeoutError at the handler's own await, once what it awaits has been cancelled."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, CoroutineType, FrameType, TracebackType
from typing import Any, Final

from limpet.core.tasks.declare import plain_function
from limpet.core.text.duration import text_of_ms
from limpet.runtime.attempt import Attempt

Run = Callable[..., Any]

_LEAVES_GROUP: Final = asyncio.TaskGroup.__aexit__.__code__
_OWN: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Interruption:
    """Runs the steps of a handler that is out of time, until its await has ended.

    What it awaits gets CancelledError, so drivers and task groups clean up as they do in every cancellation: they would
    take a TimeoutError for one of their own (psycopg for a closed socket, redis for a reason to try again). Only the
    handler's frame sees TimeoutError, as if the await stood in `asyncio.timeout()`. No coroutine can be made to do this
    from outside but by a trace function, which may raise where a frame receives an exception; it is set for these
    steps alone.
    """

    __slots__ = ("_attempt", "_frame", "_leaves_group", "_run", "_task")

    def __init__(self, attempt: Attempt, body: Coroutine[Any, Any, Any], task: asyncio.Task[Any], run: Run) -> None:
        handler = _handler_in(body, attempt)
        self._attempt = attempt
        self._task = task
        self._run = run
        self._frame: FrameType | None = None if handler is None else handler.cr_frame
        self._leaves_group = getattr(getattr(handler, "cr_await", None), "cr_code", None) is _LEAVES_GROUP

    def __call__(self, step: Callable[[Any], Any], value: Any) -> Any:
        """One step, as `Context.run` makes it."""
        frame = self._frame
        if frame is None:
            return self._run(step, value)
        before, before_here = sys.gettrace(), frame.f_trace
        frame.f_trace = self._seen
        sys.settrace(self._entered)
        try:
            return self._run(step, value)
        finally:
            sys.settrace(before)
            frame.f_trace = before_here

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._seen if frame is self._frame else None

    def _seen(self, frame: FrameType, event: str, arg: Any) -> Any:
        """What happens in the handler's frame: its await ends with an exception, or the next line runs."""
        if event == "exception":
            self._frame = None
            if issubclass(arg[0], asyncio.CancelledError) and self._attempt.cause == "timeout":
                self._task.uncancel()  # as asyncio.timeout() does: a timeout is no cancellation
                raise self._timeout(arg[2]) from None
        elif event == "line":
            self._frame = None  # what it awaits has kept the cancellation to itself
        return self._seen

    def _timeout(self, where: TracebackType) -> Exception:
        """What the handler gets; its traceback shows what it waited for."""
        error = TimeoutError(f"timed out after {text_of_ms(self._attempt.elapsed_ms())}").with_traceback(where)
        return ExceptionGroup("unhandled errors in a TaskGroup", [error]) if self._leaves_group else error


def _handler_in(body: Coroutine[Any, Any, Any], attempt: Attempt) -> CoroutineType[Any, Any, Any] | None:
    """The coroutine of the task's own function, beneath middleware and decorators; else the outermost of theirs."""
    plain = plain_function(attempt.spec.fn)
    code: CodeType | None = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    first: CoroutineType[Any, Any, Any] | None = None
    at: Any = body
    while isinstance(at, CoroutineType):
        if at.cr_code is code:
            return at
        if first is None and not at.cr_code.co_filename.startswith(_OWN):
            first = at
        at = at.cr_await
    return first
