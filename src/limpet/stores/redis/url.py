"""Decides what a Redis URL means; what cannot work is refused by name, never guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Struct

from limpet.core.errors import InvalidOption, UsageError
from limpet.stores.server.url import TIMEOUT_S, did_you_mean, flag, host_and_port, is_count, refuse_fragment, seconds
from limpet.stores.shown import redacted

Topology = Literal["one", "sentinel", "cluster"]

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
KEEP: Final = 100_000

_SCHEME: Final = re.compile(r"(redis|valkey)(s?)(?:\+(unix|sentinel|cluster))?")
_EXAMPLE: Final = "write redis://host:6379/0"


class Where(Struct, frozen=True):
    """The address of one server: a host and port, or a socket in the file system."""

    host: str
    port: int = PORT
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(Struct, frozen=True, dict=True, repr_omit_defaults=True):
    """What a Redis or Valkey URL says. Its text never shows a password."""

    topology: Topology
    servers: tuple[Where, ...]  # the server, or the Sentinels, or some nodes of the Cluster
    user: str = ""
    password: str = ""
    db: int = 0
    master: str = ""  # the name under which Sentinels know the server
    sentinel_user: str = ""
    sentinel_password: str = ""
    tls: bool = False
    ca: str = ""  # a file of certificates to trust instead of the system's
    cert: str = ""  # this client's own certificate and key, where the server asks for one
    key: str = ""
    insecure: bool = False  # accept every certificate
    timeout_s: float = TIMEOUT_S  # how long a verb may take, reconnecting included
    keep: int = KEEP  # finished jobs kept per queue
    strict: bool = False  # refuse to start when acknowledged jobs could be lost

    def __repr__(self) -> str:
        return f"RedisUrl({self.shown})"

    @cached_property
    def shown(self) -> str:
        """Where it leads, for people: no login, no options."""
        scheme = "rediss" if self.tls else "redis"
        if self.servers[0].path:
            return f"redis+unix://{quote(self.servers[0].path)}"
        hosts = ",".join(str(where) for where in self.servers)
        if self.topology == "cluster":
            return f"{scheme}+cluster://{hosts}"
        if self.topology == "sentinel":
            return f"{scheme}+sentinel://{hosts}/{self.master}/{self.db}"
        return f"{scheme}://{hosts}/{self.db}"


def parse_redis(url: str) -> RedisUrl:
    """Read a URL whose scheme is one of Redis's."""
    scheme, _, rest = url.partition("://")
    form = _SCHEME.fullmatch(scheme.lower())
    if form is None or not rest:
        raise UsageError(f"{redacted(url)!r} is not a Redis URL", fix=_EXAMPLE)
    refuse_fragment(url, rest)
    place, _, query = rest.partition("?")
    netloc, slash, path = place.partition("/")
    login, _, hosts = netloc.rpartition("@")
    kind = form.group(3) or "one"
    fields: dict[str, Any] = {"tls": bool(form.group(2)), **_login(url, login)}
    if kind == "unix":
        fields |= _socket(url, hosts, slash + path, tls=fields["tls"])
    else:
        port = SENTINEL_PORT if kind == "sentinel" else PORT
        if kind == "one" and "," in hosts:
            raise UsageError(
                f"{redacted(url)!r} names several servers, but not how they belong together",
                fix="write redis+sentinel://host1,host2/mymaster or redis+cluster://host1,host2",
            )
        servers = tuple(_server(url, text, port) for text in hosts.split(","))
        fields |= {"topology": kind, "servers": servers, **_path(url, kind, path)}
    return RedisUrl(**fields | _options(url, kind, query, tls=fields["tls"]))


def _login(url: str, login: str) -> dict[str, str]:
    if not login:
        return {}
    user, colon, password = login.partition(":")
    if not colon or not password:
        raise UsageError(
            f"{redacted(url)!r} names a user or a password, but not which",
            fix="write redis://:password@host or redis://user:password@host",
        )
    return {"user": unquote(user), "password": unquote(password)}


def _socket(url: str, host: str, path: str, *, tls: bool) -> dict[str, Any]:
    if host or tls or path in ("", "/"):
        raise UsageError(
            f"{redacted(url)!r} does not name a socket file", fix="write redis+unix:///run/redis/redis.sock"
        )
    return {"topology": "one", "servers": (Where("", 0, unquote(path)),)}


def _server(url: str, text: str, port: int) -> Where:
    found = host_and_port(url, text, port, _EXAMPLE)
    if found is None or not found[0]:
        fix = f"{_EXAMPLE}: a host before and after each comma, special characters of a password as %XX"
        raise UsageError(f"{redacted(url)!r} names no host", fix=fix)
    return Where(*found)


def _path(url: str, kind: str, path: str) -> dict[str, Any]:
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if kind == "sentinel":
        if not parts or not parts[0]:
            raise UsageError(
                f"{redacted(url)!r} does not say which master the Sentinels shall be asked for",
                fix="write redis+sentinel://host1,host2/mymaster, or /mymaster/0 with a database number",
            )
        return {"master": unquote(parts[0]), **_db(url, parts[1:])}
    if kind == "cluster" and parts not in ([], ["0"]):
        raise UsageError(f"{redacted(url)!r} names a database, and a Cluster has one only", fix="leave the path away")
    return _db(url, parts)


def _db(url: str, parts: list[str]) -> dict[str, int]:
    if not parts:
        return {}
    if len(parts) > 1 or not is_count(parts[0]):
        raise UsageError(f"{redacted(url)!r} names no database number after the last /", fix=_EXAMPLE)
    return {"db": int(parts[0])}


def _count(text: str) -> int:
    if not is_count(text):
        raise ValueError(text)
    return int(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


# name: (field, how it is read, what it may be, where it makes sense)
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any], str, str]]] = {
    "timeout": ("timeout_s", seconds, "seconds from 0.1 to 600", "any"),
    "keep": ("keep", _count, "a number of finished jobs, such as 100000", "any"),
    "strict": ("strict", flag, "1 or 0", "any"),
    "db": ("db", _count, "a database number", "unix"),
    "ca": ("ca", _text, "the path of a file with certificates", "tls"),
    "cert": ("cert", _text, "the path of this client's certificate", "tls"),
    "key": ("key", _text, "the path of this client's key", "tls"),
    "insecure": ("insecure", flag, "1 or 0", "tls"),
    "sentinel_user": ("sentinel_user", _text, "a user of the Sentinels", "sentinel"),
    "sentinel_password": ("sentinel_password", _text, "the password of the Sentinels", "sentinel"),
}


def _options(url: str, kind: str, query: str, *, tls: bool) -> dict[str, Any]:
    known = {name for name, (*_, where) in _OPTIONS.items() if where in ("any", kind) or (where == "tls" and tls)}
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise InvalidOption(f"{redacted(url)!r} has an unknown option {name!r}", fix=_advice(name, known))
        field, read, meaning, _ = _OPTIONS[name]
        try:
            found[field] = read(text)
        except (ValueError, KeyError):
            said = "" if "password" in name else f"={text!r}"
            raise InvalidOption(f"{redacted(url)!r} has {name}{said}", fix=f"{name} is {meaning}") from None
    if bool(found.get("cert")) != bool(found.get("key")):
        raise InvalidOption(f"{redacted(url)!r} has a cert without its key, or the reverse", fix="give both")
    return found


def _advice(name: str, known: set[str]) -> str:
    if name in _OPTIONS:
        where = _OPTIONS[name][3]
        return (
            f"{name} is an option of rediss:// alone" if where == "tls" else f"{name} is an option of redis+{where}://"
        )
    return did_you_mean(name, known, f"the options are: {', '.join(sorted(known))}")
