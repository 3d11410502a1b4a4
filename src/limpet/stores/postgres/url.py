"""Decides what a PostgreSQL URL means; what cannot work is refused by name, never guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Struct

from limpet.core.errors import InvalidOption, UsageError
from limpet.core.settings import namespace_of
from limpet.stores.server.url import TIMEOUT_S, did_you_mean, flag, host_and_port, is_count, refuse_fragment, seconds
from limpet.stores.shown import redacted

Prepare = Literal["auto", "yes", "no"]

PORT: Final = 5432
POOL: Final = 4
SCHEMA: Final = "limpet"
LONGEST_NAME: Final = 63  # PostgreSQL cuts longer names, and two namespaces could become one

_EXAMPLE: Final = "write postgresql://user:password@host:5432/database"

# What libpq is asked for unless the URL says otherwise. An unused connection is probed before a load
# balancer forgets it (often after a minute), and one that was cut in silence is noticed in three quarters of a minute.
DEFAULTS: Final = {
    "application_name": "limpet",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}


class Where(Struct, frozen=True):
    """The address of one server: a host and port, or the folder of its sockets; no host is libpq's own choice."""

    host: str = ""
    port: int = PORT

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return f"{quote(self.host, safe='')}:{self.port}" if self.port != PORT else quote(self.host, safe="")
        if not self.host:
            return ""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PostgresUrl(Struct, frozen=True, dict=True):
    """What a PostgreSQL URL says. Its text never shows a password."""

    servers: tuple[Where, ...] = (Where(),)
    user: str = ""
    password: str = ""
    database: str = ""
    libpq: tuple[tuple[str, str], ...] = ()  # options of the driver, handed on as they are
    schema: str = SCHEMA  # of the default namespace; others have theirs beside it
    listen: PostgresUrl | None = None  # another way to the same server, on which LISTEN works
    pool: int = POOL  # connections of one event loop, at most
    timeout_s: float = TIMEOUT_S  # how long a verb may take, reconnecting included
    prepare: Prepare = "auto"  # auto: unless there is a pooler between us and the server
    strict: bool = False  # refuse to start when acknowledged jobs could be lost

    def __repr__(self) -> str:
        return f"PostgresUrl({self.shown})"

    @cached_property
    def shown(self) -> str:
        """Where it leads, for people: no login, no options."""
        return f"postgresql://{','.join(str(where) for where in self.servers)}/{quote(self.database)}"

    @property
    def listening(self) -> PostgresUrl:
        """The way to take for LISTEN."""
        return self.listen or self

    @property
    def connect_s(self) -> float:
        """How long a connection may take: a server that does not answer must not use up the time of the next."""
        return max(self.timeout_s, len(self.servers) * self._each_s)

    @property
    def _each_s(self) -> int:
        return max(2, int(self.timeout_s / len(self.servers)))  # libpq's least is 2

    def keywords(self) -> dict[str, str]:
        """The same for libpq."""
        said = {**DEFAULTS, "client_encoding": "UTF8"}
        if any(where.host for where in self.servers):
            said["host"] = ",".join(where.host for where in self.servers)
            said["port"] = ",".join(str(where.port) for where in self.servers)
        if len(self.servers) > 1:
            said["target_session_attrs"] = "read-write"  # a standby takes no jobs
            said["connect_timeout"] = str(self._each_s)
        login = {"user": self.user, "password": self.password, "dbname": self.database}
        return {**said, **{name: value for name, value in login.items() if value}, **dict(self.libpq)}


def schema_of(url: PostgresUrl, namespace: str) -> str:
    """The schema that holds a namespace."""
    name = url.schema if namespace_of(namespace) == "default" else f"{url.schema}_{namespace}"
    if len(name) > LONGEST_NAME:
        raise InvalidOption(
            f"the schema of namespace {namespace!r} would be {name!r}, too long a name for PostgreSQL",
            fix=f"choose a shorter schema= or namespace: {LONGEST_NAME} characters in all",
        )
    return name


def parse_postgres(url: str) -> PostgresUrl:
    """Read a URL whose scheme is postgresql or postgres."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("postgresql", "postgres") or "://" not in url:
        raise UsageError(f"{redacted(url)!r} is not a PostgreSQL URL", fix=_EXAMPLE)
    refuse_fragment(url, rest)
    place, _, query = rest.partition("?")
    netloc, _, path = place.partition("/")
    login, _, hosts = netloc.rpartition("@")
    if "/" in path.rstrip("/"):
        raise UsageError(
            f"{redacted(url)!r} names more than a database after the host",
            fix=f"{_EXAMPLE}: special characters of a password or of the path of a socket as %XX",
        )
    user, _, password = login.partition(":")
    fields: dict[str, Any] = {
        "servers": tuple(_server(url, text) for text in hosts.split(",")),
        "user": unquote(user),
        "password": unquote(password),
        "database": unquote(path.rstrip("/")),
    }
    return _with_options(url, PostgresUrl(**fields), query)


def _server(url: str, text: str) -> Where:
    found = host_and_port(url, text, PORT, _EXAMPLE)
    if found is None:
        raise UsageError(
            f"{redacted(url)!r} names no host",
            fix=f"{_EXAMPLE}: special characters of a password or of the path of a socket as %XX",
        )
    return Where(*found)


def _pool(text: str) -> int:
    if not (is_count(text) and 1 <= int(text) <= 100):
        raise ValueError(text)
    return int(text)


def _prepare(text: str) -> Prepare:
    if text not in ("auto", "yes", "no"):
        raise ValueError(text)
    return cast(Prepare, text)


def _schema(text: str) -> str:
    """Not one that others use: tables called job or post would be found in place of a user's own tables."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text) or len(text) > LONGEST_NAME:
        raise ValueError(text)
    if text.startswith("pg_") or text in ("public", "information_schema"):
        raise ValueError(text)
    return text


# name: (field, how it is read, what it may be)
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any], str]]] = {
    "timeout": ("timeout_s", seconds, "seconds from 0.1 to 600"),
    "pool": ("pool", _pool, "a number of connections from 1 to 100"),
    "prepare": ("prepare", _prepare, "auto, yes or no"),
    "schema": (
        "schema",
        _schema,
        "a schema of its own: a letter, then letters, digits, '_', '-' or '.'; not public, information_schema or pg_…",
    ),
    "strict": ("strict", flag, "1 or 0"),
}
_LISTEN: Final = "listen_url"
# Options of libpq that make sense here. What a pool of short calls cannot heed (replication, fallback_…) is not among
# them; host, port, user, password and dbname are written as options where the URL has no place for them.
LIBPQ: Final = frozenset(
    (
        "host",
        "hostaddr",
        "port",
        "user",
        "password",
        "dbname",
        "passfile",
        "service",
        "servicefile",
        "application_name",
        "options",
        "connect_timeout",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
        "target_session_attrs",
        "load_balance_hosts",
        "channel_binding",
        "require_auth",
        "sslmode",
        "sslnegotiation",
        "sslcompression",
        "sslcert",
        "sslkey",
        "sslkeylogfile",
        "sslpassword",
        "sslcertmode",
        "sslrootcert",
        "sslcrl",
        "sslcrldir",
        "sslsni",
        "requirepeer",
        "ssl_min_protocol_version",
        "ssl_max_protocol_version",
        "min_protocol_version",
        "max_protocol_version",
        "gssencmode",
        "krbsrvname",
        "gsslib",
        "gssdelegation",
    )
)


def _with_options(url: str, parsed: PostgresUrl, query: str) -> PostgresUrl:
    fields: dict[str, Any] = {}
    libpq: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name in LIBPQ:
            libpq[name] = text
        elif name == _LISTEN:
            fields["listen"] = _listening(url, parsed, text)
        elif name in _OPTIONS:
            field, read, meaning = _OPTIONS[name]
            try:
                fields[field] = read(text)
            except (ValueError, KeyError):
                raise InvalidOption(f"{redacted(url)!r} has {name}={text!r}", fix=f"{name} is {meaning}") from None
        else:
            raise InvalidOption(f"{redacted(url)!r} has an unknown option {name!r}", fix=_advice(name))
    whole = {name: getattr(parsed, name) for name in parsed.__struct_fields__} | fields
    if (listen := whole["listen"]) is not None and not listen.libpq:
        # The same server by another way: what holds for TLS here holds there.
        whole["listen"] = PostgresUrl(
            listen.servers, listen.user, listen.password, listen.database, tuple(libpq.items())
        )
    return PostgresUrl(**whole | {"libpq": tuple(libpq.items())})


def _listening(url: str, parsed: PostgresUrl, text: str) -> PostgresUrl:
    """A whole URL, or only a host and port where all else is the same."""
    if "://" in text:
        listen = parse_postgres(text)
        if listen.listen is not None or any(name in text for name in (f"{_LISTEN}=",)):
            raise InvalidOption(f"{redacted(url)!r} has a {_LISTEN} within its {_LISTEN}", fix="give one")
        return listen
    servers = tuple(_server(url, each) for each in text.split(","))
    if not text or not all(where.host for where in servers):
        raise InvalidOption(
            f"{redacted(url)!r} has a {_LISTEN} that names no host",
            fix=f"{_LISTEN} is host:port, or a URL with each : / @ ? & written as %XX",
        )
    return PostgresUrl(servers, parsed.user, parsed.password, parsed.database)


def _advice(name: str) -> str:
    own = [*_OPTIONS, _LISTEN]
    otherwise = f"the options are: {', '.join(sorted(own))}, and those of libpq"
    return did_you_mean(name, [*own, *LIBPQ], otherwise)
