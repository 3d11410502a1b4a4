"""The tree of errors that Limpet raises; each carries a stable code and the way to fix it."""

from __future__ import annotations

from datetime import datetime


class LimpetError(Exception):
    """Everything Limpet raises on purpose. `code` is stable; `fix` says what to do next."""

    code: str = "limpet"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(f"{message} ({fix})" if fix else message)
        self.message = message
        self.fix = fix


class UsageError(LimpetError, ValueError):
    """The caller is wrong; nothing was stored."""

    code = "usage"


class InvalidTask(UsageError):
    """A task was declared in a way that cannot work."""

    code = "invalid_task"


class InvalidOption(UsageError):
    """An option has an unknown name or a value that makes no sense."""

    code = "invalid_option"


class UnknownAttribute(UsageError, AttributeError):
    """An attribute that other libraries have; the message says what it is called here."""

    code = "unknown_attribute"


class ImportFailed(UsageError):
    """A module of the app cannot be imported; the message shows where, in frames of the app."""

    code = "import_failed"


class InvalidArguments(UsageError):
    """The arguments do not fit the task's signature."""

    code = "invalid_arguments"


class PayloadTooLarge(UsageError):
    """The encoded arguments are over the limit."""

    code = "payload_too_large"


class NotSerialisable(UsageError):
    """A value has no safe stored form."""

    code = "not_serialisable"


class UnknownQueue(UsageError):
    """The app declared its queues and this is none of them."""

    code = "unknown_queue"


class UnknownParent(UsageError):
    """`after=` names a job that is not stored."""

    code = "unknown_parent"


class CycleFound(UsageError):
    """Jobs that wait for each other would wait for ever."""

    code = "cycle_found"


class BatchTooLarge(UsageError):
    """An atomic batch is over 20,000 jobs or 16 MiB."""

    code = "batch_too_large"


class QueueDraining(UsageError):
    """The queue is being drained and takes no new jobs."""

    code = "queue_draining"


class QueueFull(UsageError):
    """The queue, or the share of one tenant in it, holds as many waiting jobs as it may; nothing was stored.

    `room` is how many more would fit. `tenant` is None when the queue itself is full.
    """

    code = "queue_full"

    def __init__(
        self, message: str, *, fix: str = "", queue: str = "", tenant: str | None = None, room: int = 0
    ) -> None:
        super().__init__(message, fix=fix)
        self.queue = queue
        self.tenant = tenant
        self.room = room


class BudgetExceeded(UsageError):
    """A budget that refuses (`over="refuse"`) has no room for the job now; nothing was stored.

    `left` and `needs` are amounts of `unit` (dollars of "usd"); the period ends at `until`.
    """

    code = "budget_exceeded"

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        key: str = "",
        unit: str = "",
        left: float = 0,
        needs: float = 0,
        until: datetime | None = None,
    ) -> None:
        super().__init__(message, fix=fix)
        self.key = key
        self.unit = unit
        self.left = left
        self.needs = needs
        self.until = until


class WrongContext(UsageError):
    """A blocking call inside a running event loop, or a verb inside the caller's own transaction."""

    code = "wrong_context"


class InvalidStep(UsageError):
    """A durable step cannot be what it is asked to be: its name is taken, or it stands inside another one."""

    code = "invalid_step"


class SuspensionCaught(UsageError):
    """A handler caught the exception by which it was suspended, and went on as if the wait were over."""

    code = "suspension_caught"


class AmbiguousId(UsageError):
    """The end of an id fits more than one job, or more than one flow."""

    code = "ambiguous_id"


class StoreError(LimpetError):
    """The engine is in trouble. `verb` is what was asked; `retryable` says whether asking again can help."""

    code = "store"
    retryable = False

    def __init__(self, message: str, *, verb: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.verb = verb


class StoreUnreachable(StoreError):
    """The engine cannot be opened or reached."""

    code = "store_unreachable"
    retryable = True


class StoreTimeout(StoreError):
    """The engine did not answer in time; the verb may have happened all the same."""

    code = "store_timeout"
    retryable = True


class StoreFull(StoreError):
    """The engine has no space left; nothing was stored."""

    code = "store_full"
    retryable = True


class StoreCorrupt(StoreError):
    """The engine's own data cannot be read."""

    code = "store_corrupt"


class SchemaOutdated(StoreError):
    """The stored layout and this release do not fit together."""

    code = "schema_outdated"


class JobError(LimpetError):
    """What asking about a job can answer instead of a value."""

    code = "job"


class JobDead(JobError):
    """The job is in the dead-letter queue."""

    code = "job_dead"

    def __init__(self, message: str, *, error: str = "", traceback: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.error = error
        self.traceback = traceback


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "job_cancelled"

    def __init__(self, message: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.reason = reason


class JobNotFound(JobError):
    """No such job is stored: it never was, it was pruned, or what names it is no id at all."""

    code = "job_not_found"


class FlowNotFound(JobNotFound):
    """No job of such a flow is stored."""

    code = "flow_not_found"


class ResultTimeout(JobError, TimeoutError):
    """The job did not finish within the time given; it continues."""

    code = "result_timeout"


class LeaseLost(JobError):
    """This attempt no longer owns its job: another worker may be running it, so nothing it does will count."""

    code = "lease_lost"


class StepFailed(JobError):
    """A step failed and its error is kept (on_error="keep"): later attempts meet the same error again."""

    code = "step_failed"

    def __init__(self, message: str, *, step: str = "", error: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.step = step
        self.error = error


class StepsChanged(JobError):
    """The code makes other steps than those that are recorded. Nothing is lost; `fix` names the ways to go on."""

    code = "steps_changed"

    def __init__(self, message: str, *, recorded: str = "", called: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.recorded = recorded
        self.called = called


class WaitTimeout(JobError, TimeoutError):
    """The event or the decision did not come in time; later attempts are told the same."""

    code = "wait_timeout"
