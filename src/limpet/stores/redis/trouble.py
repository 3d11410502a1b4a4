"""Decides what each way of not getting an answer means: wait, go elsewhere, or say what is wrong and how to fix it."""

from __future__ import annotations

import re
import ssl
from typing import Final, Literal

from limpet.core.errors import SchemaOutdated, StoreError, StoreFull, StoreUnreachable
from limpet.stores.redis.connection import Refusal
from limpet.stores.redis.server import Nowhere
from limpet.stores.redis.url import Where
from limpet.stores.server import trouble

Remedy = Literal["wait", "elsewhere", "moved", "ask", "load", "none"]

# By the first word of the server's answer. None of these has changed anything, so asking again is safe.
REMEDIES: Final[dict[str, Remedy]] = {
    "LOADING": "wait",
    "BUSY": "wait",
    "TRYAGAIN": "wait",
    "CLUSTERDOWN": "wait",
    "MASTERDOWN": "wait",
    "MAXCLIENTS": "wait",
    "READONLY": "elsewhere",
    "MOVED": "moved",
    "ASK": "ask",
    "NOSCRIPT": "load",
}

# Redis 6.2 wraps the answer that stopped a script ("ERR Error running script (call to f_…): @user_script:1:
# @user_script: 1: -OOM command not allowed …"); Redis 7 hands it on as it is. Some carry no minus.
_INNER: Final = re.compile(r"@user_script: ?\d+: -?([A-Z]{3,}) ")

PERMISSIONS: Final = "~{limpet:*}* resetchannels &{limpet:*}* +@all -@dangerous +info +role +config|get"

# code: (error, what is wrong, how to fix it)
_REASONS: Final[dict[str, tuple[type[StoreError], str, str]]] = {
    "OOM": (StoreFull, "is at its maxmemory and stored nothing", "raise maxmemory, or shorten the retention"),
    "MISCONF": (StoreFull, "cannot write to its disk and takes no changes", "free some space on the server's disk"),
    "NOREPLICAS": (StoreUnreachable, "has too few replicas to take changes", "bring the replicas back"),
    "NOAUTH": (StoreError, "asks for a password", "write redis://:password@host or redis://user:password@host"),
    "WRONGPASS": (StoreError, "does not accept this user and password", "correct them in the URL"),
    "NOPERM": (StoreError, "does not permit what the engine needs", f"give the user {PERMISSIONS}"),
    "LPLAYOUT": (SchemaOutdated, "holds a layout that this release cannot work with", "upgrade limpet"),
    "READONLY": (StoreUnreachable, "is a replica and takes no changes", "name the master, or use redis+sentinel://"),
    "LOADING": (StoreUnreachable, "is still loading its data", "wait until it has"),
    "BUSY": (StoreUnreachable, "is held up by a script that runs for seconds", "find out whose it is: SLOWLOG GET"),
    "TRYAGAIN": (StoreUnreachable, "is handing these keys to another node", "wait until the slot has moved"),
    "CLUSTERDOWN": (StoreUnreachable, "says that its Cluster is down", "see CLUSTER INFO"),
    "MASTERDOWN": (StoreUnreachable, "has lost its master", "bring the master back"),
    "MAXCLIENTS": (StoreUnreachable, "has no connection left for us", "raise its maxclients, or see CLIENT LIST"),
    "DENIED": (StoreError, "is in protected mode and talks to its own machine alone", "give it a password"),
    "MOVED": (StoreUnreachable, "sends us in a circle", "see whether all nodes agree on CLUSTER SLOTS"),
    "ASK": (StoreUnreachable, "sends us in a circle", "see whether all nodes agree on CLUSTER SLOTS"),
}


def code_of(refusal: Refusal) -> str:
    """The code that counts: of the answer itself, or of what stopped the script inside."""
    code = refusal.code
    if code == "ERR" and (inner := _INNER.search(refusal.text)) is not None:
        return inner.group(1)
    return code


def remedy_of(refusal: Refusal) -> Remedy:
    """What may help against an answer."""
    return REMEDIES.get(code_of(refusal), "none")


def refused(refusal: Refusal, verb: str, where: object) -> StoreError:
    """The engine's error for an answer that asking again does not change, or has not changed in time."""
    known = _REASONS.get(code_of(refusal))
    if known is None:
        error = StoreError(
            f"{where} refused {verb}: {refusal.text}", verb=verb, fix="see the server's log; this should not happen"
        )
    else:
        kind, reason, fix = known
        error = kind(f"{where} {reason} ({refusal.text})", verb=verb, fix=fix)
    error.__cause__ = refusal
    return error


def unreachable(cause: BaseException, verb: str, where: object, after_s: float | None = None) -> StoreError:
    """Nothing was sent, and the time is over; or none is given to a refused connection."""
    if isinstance(cause, Refusal):
        return refused(cause, verb, where)
    return trouble.unreachable(cause, verb, where, after_s)


def hopeless(cause: BaseException, verb: str, where: object) -> StoreError | None:
    """The error for a connection that no waiting will open; None where waiting may help."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        error = StoreError(
            f"the certificate of {where} cannot be trusted ({cause.verify_message})",
            verb=verb,
            fix="name the right host, or its authority with ?ca=FILE",
        )
    elif isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
        error = StoreError(f"{where} does not speak TLS", verb=verb, fix="write redis:// instead of rediss://")
    else:
        return None
    error.__cause__ = cause
    return error


def is_refused(cause: BaseException) -> bool:
    """True when no server listens there, or the name is unknown: most likely it stays so."""
    return isinstance(cause, OSError) and not isinstance(cause, TimeoutError | Nowhere)


def target_of(refusal: Refusal, here: Where) -> Where:
    """The node that a MOVED or ASK names. Without a host it is another port of the one that answered."""
    host, _, port = refusal.text.split(" ")[2].rpartition(":")
    return Where(host.strip("[]") or here.host, int(port))
