"""The names of spans' attributes and events: those of the conventions, which are still in development, and our own."""

from __future__ import annotations

from typing import Final

SYSTEM: Final = "limpet"

# OpenTelemetry's conventions for messaging, 1.44. Plain words: the package that has them moves them between releases.
MESSAGING_SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"  # the queue
MESSAGE_ID: Final = "messaging.message.id"  # the job
CONVERSATION_ID: Final = "messaging.message.conversation_id"  # the flow
ERROR_TYPE: Final = "error.type"

# Its general conventions for exceptions.
EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

# What it has no words for.
TASK: Final = "limpet.task"
PRIORITY: Final = "limpet.priority"
ATTEMPT: Final = "limpet.attempt"
MAX_ATTEMPTS: Final = "limpet.max_attempts"
SCHEDULE: Final = "limpet.schedule"
ENDING: Final = "limpet.ending"  # of an attempt that neither succeeded nor failed: suspended, snoozed, handed back …
STEP: Final = "limpet.step"
TRY: Final = "limpet.step.try"  # counted from 1 in this attempt
