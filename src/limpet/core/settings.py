"""Decides what a configuration file may say, and which of several sources of a setting wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.core.access.role import ROLES
from limpet.core.alerts.settings import AlertsTable, refuse_unknown_alerts
from limpet.core.errors import InvalidOption
from limpet.core.jobs.retention import keep_of
from limpet.core.jobs.state import State
from limpet.core.limits.rate import checked_ceiling, parse_rate
from limpet.core.tasks.naming import did_you_mean, refuse_unknown

DEFAULT_URL: Final = "sqlite:///limpet.db"
DEFAULT_NAMESPACE: Final = "default"

Seconds = int | float | str  # a number of seconds, or text such as "5m"


class WorkerTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The [worker] table: what `limpet worker` takes when no flag says otherwise."""

    queues: list[str] | None = None
    hooks: bool | None = None
    concurrency: int | None = None
    threads: int | None = None
    processes: int | None = None
    job_processes: int | None = None
    reserve: int | None = None
    claim_ahead: Seconds | None = None
    ageing: int | None = None
    grace: Seconds | None = None
    cut_off: Seconds | None = None
    capabilities: list[str] | None = None
    max_jobs: int | None = None
    max_memory_mb: int | None = None
    probe_port: int | str | None = None
    metrics: int | str | None = None
    log: str | None = None
    log_level: str | None = None
    log_setup: bool = True


class RetentionTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The [retention] table: how long finished things stay."""

    succeeded: Seconds | None = None
    cancelled: Seconds | None = None
    dead: Seconds | None = None
    audit: Seconds | None = None
    events: Seconds | None = None
    queues: dict[str, dict[str, Seconds]] = {}  # by queue: how long its jobs stay, by how they ended

    def of_queues(self) -> dict[str, dict[State, int | None]]:
        """What it says of single queues."""
        return {name: keep_of(table, what=f"retention.queues.{name}") for name, table in self.queues.items()}


class ServerTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The [server] table: where `limpet serve` listens, who needs a token, and how often a token may ask."""

    bind: str = "127.0.0.1"
    port: int = 8787
    loopback_role: str = "admin"  # of requests from this machine without a token; "none": they need one, too
    allowed_hosts: list[str] = []  # names in the Host header beside those of loopback
    allowed_origins: list[str] = []  # origins of pages elsewhere whose requests from this machine need no token
    rate: str = "100/s"  # of requests, for each token
    burst: int | None = None  # requests at once; None: the number of the rate
    waiting: int = 500  # requests that may wait at once: claims for a job, and GET jobs/ID?wait= for its end

    def checked(self, where: str) -> ServerTable:
        """The same; what makes no sense is refused by name."""
        if self.loopback_role not in (*ROLES, "none"):
            raise InvalidOption(
                f"{where}: loopback_role={self.loopback_role!r} is not a role",
                fix=did_you_mean(self.loopback_role, (*ROLES, "none")),
            )
        if not 0 <= self.port <= 65_535:
            raise InvalidOption(f"{where}: port={self.port} is not a port", fix="write 1 to 65535, or 0 for any")
        for origin in self.allowed_origins:
            if not re.fullmatch(r"https?://[^/\s]+", origin):
                raise InvalidOption(
                    f"{where}: allowed_origins names {origin!r}, which is not an origin",
                    fix='write it as browsers do, without a path: "https://ops.example.com"',
                )
        for host in self.allowed_hosts:
            if not re.fullmatch(r"[^/\s:]+|\[[0-9A-Fa-f:.]+\]", host):
                raise InvalidOption(
                    f"{where}: allowed_hosts names {host!r}, which is not the name of a host",
                    fix='write it without scheme and port: "limpet.internal"',
                )
        parse_rate(self.rate, what=f"{where}: rate")
        if self.burst is not None:
            checked_ceiling(self.burst, what=f"{where}: burst={self.burst!r}")
        checked_ceiling(self.waiting, what=f"{where}: waiting={self.waiting!r}")
        return self


class FileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One configuration file."""

    url: str | None = None
    namespace: str | None = None
    outbox: str | None = None
    app: str | None = None
    worker: WorkerTable = WorkerTable()
    server: ServerTable = ServerTable()
    retention: RetentionTable = RetentionTable()
    alerts: AlertsTable | None = None  # None: this file says nothing of alerts, and changes nothing that is stored
    types: dict[str, dict[str, Any]] = {}  # by name: see core/tasks/agent_type


class Setting(Struct, frozen=True):
    """A value and the source that won, so that people can be told."""

    value: str
    source: str


def parse_settings(table: Mapping[str, object], where: str) -> FileSettings:
    """Read a configuration table; an unknown key or a value of the wrong kind is refused by name."""
    refuse_unknown(table, FileSettings.__struct_fields__, where)
    for name, kind in (("worker", WorkerTable), ("server", ServerTable), ("retention", RetentionTable)):
        inner = table.get(name)
        if isinstance(inner, Mapping):
            refuse_unknown(inner, kind.__struct_fields__, f"{where} [{name}]")
    refuse_unknown_alerts(table.get("alerts"), f"{where} [alerts]")
    try:
        found = msgspec.convert(table, FileSettings)
        found.retention.of_queues()  # raises, naming what makes no sense
        found.server.checked(f"{where} [server]")
        if found.alerts is not None:
            found.alerts.checked(f"{where} [alerts]")
        return found
    except msgspec.ValidationError as error:
        raise InvalidOption(f"{where}: {error}", fix="see the configuration page of the docs for each key") from error


def namespace_of(name: str) -> str:
    """A namespace name that every engine accepts."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,48}", name):
        raise InvalidOption(f"{name!r} is not a namespace", fix="use 1-48 letters, digits, '_', '-' or '.'")
    return name


def first_of(candidates: Iterable[tuple[str | None, str]], default: str) -> Setting:
    """The first source that says anything wins; an empty text says nothing."""
    for value, source in candidates:
        if value:
            return Setting(value, source)
    return Setting(default, "default")
