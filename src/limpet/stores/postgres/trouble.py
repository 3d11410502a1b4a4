"""Decides what each way of not getting an answer means: wait, connect again, or say what is wrong and how to fix it."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec
import psycopg

from limpet.core.errors import (
    LimpetError,
    QueueDraining,
    QueueFull,
    SchemaOutdated,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
    UnknownParent,
    UsageError,
)
from limpet.core.limits.depth import queue_full
from limpet.stores.postgres.connection import Crowded, Refusal, Unfit
from limpet.stores.server import trouble
from limpet.stores.server.trouble import Lost, Silent

Remedy = Literal["again", "wait", "prepare", "none"]

TROUBLE: Final = (Lost, Silent, Crowded, Refusal, Unfit, OSError, psycopg.Error)

# By SQLSTATE. None of these has changed anything, so asking again is safe.
REMEDIES: Final[dict[str, Remedy]] = {
    "40001": "again",  # serialization failure
    "40P01": "again",  # deadlock
    "55P03": "again",  # a lock_timeout, of a function of ours or of the role
    "57P03": "wait",  # starting up, shutting down
    "53300": "wait",  # too many connections
    "57P01": "wait",  # shut down, or this server process was ended
    "57P02": "wait",  # another server process crashed
    "57P05": "wait",  # idle for too long
    "25006": "wait",  # it has become a standby
    "26000": "prepare",  # a prepared statement is gone
    "0A000": "prepare",  # a prepared statement means something else since a migration
    "42P05": "prepare",  # a prepared statement of another client of the pooler
}

MIGRATE: Final = "run `limpet migrate`"

# LP…: raised by the engine's own functions, with the texts for people.
_USAGE: Final[dict[str, type[UsageError]]] = {
    "LP001": UnknownParent,
    "LP002": QueueDraining,
    "LP003": UsageError,
    "LP006": QueueFull,
}

# code: (error, what is wrong, how to fix it)
_REASONS: Final[dict[str, tuple[type[StoreError], str, str]]] = {
    "53100": (StoreFull, "has no disk space left and stored nothing", "free some space on the server's disk"),
    "53200": (StoreFull, "is out of memory and stored nothing", "give the server more memory, or less to do at once"),
    "53400": (StoreFull, "is at a limit of its configuration and stored nothing", "see the server's log"),
    "42883": (SchemaOutdated, "does not have the functions of this release", MIGRATE),
    "42P01": (SchemaOutdated, "does not have the tables of this release", MIGRATE),
    "3F000": (SchemaOutdated, "does not have the schema of this namespace", MIGRATE),
    "42703": (SchemaOutdated, "does not have the columns of this release", MIGRATE),
    "42501": (
        StoreError,
        "does not permit what the engine needs",
        "let the role that ran `limpet migrate` connect, or GRANT to this one what it owns",
    ),
    "28P01": (StoreError, "does not accept this user and password", "correct them in the URL"),
    "28000": (StoreError, "does not let this user in", "see its pg_hba.conf and the user in the URL"),
    "3D000": (StoreError, "has no such database", "create it (createdb), or correct the URL"),
    "57P04": (StoreError, "has dropped this database", "correct the URL"),
    "57014": (StoreTimeout, "ended the statement before it was done", "raise the statement_timeout of this role"),
    "25006": (
        StoreUnreachable,
        "is read-only and takes no changes",
        "name the primary, or all servers: postgresql://a,b/db",
    ),
    "57P03": (StoreUnreachable, "is starting up or shutting down", "wait until it runs"),
    "53300": (
        StoreUnreachable,
        "has no connection left for us",
        "raise max_connections, lower pool=, or use PgBouncer",
    ),
    "57P01": (StoreUnreachable, "was shut down", "start it again"),
    "57P02": (StoreUnreachable, "crashed and is being restarted", "see the server's log"),
    "57P05": (StoreUnreachable, "ends connections that are idle", "raise its idle_session_timeout"),
    "40001": (StoreUnreachable, "could not serialise this call with others in time", "try again"),
    "40P01": (StoreUnreachable, "met deadlocks until the time was over", "try again"),
    "55P03": (
        StoreUnreachable,
        "waited for locks of another transaction until the time was over, and nothing was changed",
        "find out who holds them (pg_blocking_pids), or raise the lock_timeout of this role if it has one",
    ),
    "LP004": (
        StoreUnreachable,
        "waited for another transaction, and nothing was changed",
        "let that transaction end, then try again; pg_stat_activity shows its owner",
    ),
    "XX001": (StoreCorrupt, "found damaged data", "restore the server from a backup"),
    "XX002": (StoreCorrupt, "found a damaged index", "REINDEX it, and see the server's log"),
    "TLS": (StoreError, "cannot be spoken to like this", "see sslmode, sslrootcert and the other options of the URL"),
    "22P05": (
        StoreError,
        "cannot keep a character in the encoding of its database",
        "use a database with encoding UTF8",
    ),
}
_UNFIT: Final[dict[str, tuple[type[StoreError], str]]] = {
    "read-only": (StoreUnreachable, "name the primary, or all servers: postgresql://a,b/db"),
    "version": (StoreError, "upgrade the server to PostgreSQL 15 or newer"),
    "isolation": (StoreError, "ALTER ROLE … SET default_transaction_isolation = 'read committed'"),
}


def remedy_of(refusal: Refusal) -> Remedy:
    """What may help against an answer."""
    known = REMEDIES.get(refusal.code)
    if known is not None:
        return known
    return "wait" if refusal.code.startswith("08") else "none"  # of the connection, or of a pooler


def refused(refusal: Refusal, verb: str, where: object) -> LimpetError:
    """The error for an answer that asking again does not change, or has not changed in time."""
    error: LimpetError
    if refusal.code in _USAGE:
        error = usage_error(refusal.code, refusal.text, refusal.hint)
    elif (known := _REASONS.get(refusal.code)) is not None:
        kind, reason, fix = known
        error = kind(f"{where} {reason} ({refusal.text})", verb=verb, fix=fix)
    else:
        at = f"; {refusal.context}" if refusal.context else ""
        error = StoreError(
            f"{where} refused {verb}: {refusal}{at}", verb=verb, fix="see the server's log; this should not happen"
        )
    error.__cause__ = refusal
    return error


def usage_error(code: str, text: str, hint: str = "") -> UsageError:
    """What a function of ours refused: in its own words, or in those of core for the facts that it names."""
    if _USAGE[code] is QueueFull:
        return queue_full(**msgspec.json.decode(text))
    return _USAGE[code](text, fix=hint)


def silent(cause: BaseException | None, verb: str, where: object, after_s: float) -> StoreError:
    """The call was sent, and its time is over."""
    return trouble.silent(cause, verb, where, after_s, " or a lock is held")


def unreachable(cause: BaseException | None, verb: str, where: object, after_s: float | None) -> LimpetError:
    """Nothing was sent, and the time is over; or none is given to a refused connection."""
    if isinstance(cause, Refusal):
        return refused(cause, verb, where)
    why = fix = ""
    if isinstance(cause, Unfit):
        fix = _UNFIT[cause.code][1]
    elif isinstance(cause, Crowded):
        fix = "raise pool= in the URL, or ask for less at once"
    elif (known := _REASONS.get(_told(cause))) is not None:
        why, fix = f" {known[1]} and", known[2]
    return trouble.unreachable(cause, verb, f"{where}{why}", after_s, fix)


def hopeless(cause: BaseException, verb: str, where: object) -> StoreError | None:
    """The error for a connection that no waiting will open; None where waiting may help."""
    if isinstance(cause, Unfit):
        kind, fix = _UNFIT[cause.code]
        reason = "cannot be used"
    elif isinstance(cause, psycopg.ProgrammingError | psycopg.InterfaceError):
        kind, reason, fix = StoreError, "cannot be asked like this", "correct the options in the URL"
    elif (known := _REASONS.get(_told(cause))) is not None:
        kind, reason, fix = known
    else:
        return None
    if kind.retryable:
        return None
    error = kind(f"{where} {reason} ({trouble.said(cause)})", verb=verb, fix=fix)
    error.__cause__ = cause
    return error


# libpq gives no code for a connection that was refused, only the server's words. They are read to give up early and to
# say how to fix it; where a server speaks another language, one waits until the time is over and hears the words.
_WORDS: Final = (
    (re.compile(r"password authentication failed|no password supplied"), "28P01"),
    (re.compile(r'role "[^"]*" (does not exist|is not permitted)|pg_hba\.conf|authentication failed'), "28000"),
    (re.compile(r'database "[^"]*" does not exist|no such database'), "3D000"),
    (re.compile(r"too many (clients|connections)|connection slots are reserved|no more connections allowed"), "53300"),
    (re.compile(r"is (starting up|shutting down|in recovery)|not yet accepting connections"), "57P03"),
    (re.compile(r"session is read-only|server is in hot standby"), "25006"),
    (re.compile(r"does not support SSL|SSL error|certificate|invalid \S+ value|invalid connection option"), "TLS"),
)


def _told(cause: BaseException | None) -> str:
    """The code that the words of a failed connection stand for; of several servers, that of the last."""
    if not isinstance(cause, psycopg.OperationalError):
        return ""
    words = str(cause)
    return next((code for pattern, code in _WORDS if pattern.search(words)), "")


def is_refused(cause: BaseException) -> bool:
    """True when no server listens there, or the name is unknown: most likely it stays so."""
    if isinstance(cause, psycopg.OperationalError):
        return not isinstance(cause, psycopg.errors.ConnectionTimeout) and not _told(cause)
    return isinstance(cause, OSError) and not isinstance(cause, TimeoutError)
