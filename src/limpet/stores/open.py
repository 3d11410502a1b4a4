"""Decides which engine a URL names and opens it; no driver is imported before its URL is met."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from limpet.core.errors import InvalidOption, UsageError
from limpet.core.tasks.naming import nearest
from limpet.stores.base import Store
from limpet.stores.extras import extra_of, install_line
from limpet.stores.shown import redacted

if TYPE_CHECKING:
    from limpet.stores.postgres.url import PostgresUrl
    from limpet.stores.redis.url import RedisUrl

__all__ = ["SqliteUrl", "foreign_file", "is_memory", "located", "missing_file", "open_store", "parse_url", "redacted"]

Sync = Literal["full", "normal"]

_REDIS: Final = re.compile(r"(redis|valkey)s?(\+(unix|sentinel|cluster))?")
_SCHEMES: Final = ("sqlite", "redis", "rediss", "valkey", "redis+unix", "redis+sentinel", "redis+cluster", "postgresql")
_POSTGRES: Final = ("postgresql", "postgres")
# The options of sqlite:// and what their words mean; the first two are the ones that are recommended.
_SQLITE: Final[dict[str, dict[str, Any]]] = {
    "sync": {"full": "full", "normal": "normal"},
    "strict": {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False},
}
_EXAMPLE: Final = "write sqlite:///jobs.db for a file in this folder, sqlite:////abs/jobs.db, or sqlite:// for memory"


class SqliteUrl(Struct, frozen=True):
    """What a sqlite:// URL says. `path` None is a store in memory, for one process."""

    path: str | None
    sync: Sync = "full"
    strict: bool = False  # refuse to start when acknowledged jobs could be lost


def open_store(url: str, namespace: str = "default") -> Store:
    """The engine that `url` names. Nothing is connected yet: that happens with the first verb."""
    parsed = parse_url(url)
    # Lazy: `import limpet` loads no driver.
    if isinstance(parsed, SqliteUrl):
        from limpet.stores.sqlite import SqliteStore

        return SqliteStore(parsed.path, namespace=namespace, sync=parsed.sync, strict=parsed.strict)
    try:
        return _with_driver(parsed, namespace)
    except ImportError as error:
        extra = extra_of(error, "postgres" if url.partition(":")[0].lower() in _POSTGRES else None)
        if extra is None:
            raise
        raise UsageError(f"{redacted(url)} needs a package that is not installed", fix=install_line(extra)) from error


def _with_driver(parsed: RedisUrl | PostgresUrl, namespace: str) -> Store:
    from limpet.stores.redis.url import RedisUrl

    if isinstance(parsed, RedisUrl):
        from limpet.stores.redis import RedisStore

        return RedisStore(parsed, namespace=namespace)
    from limpet.stores.postgres import PostgresStore

    return PostgresStore(parsed, namespace=namespace)


def parse_url(url: str) -> SqliteUrl | RedisUrl | PostgresUrl:
    """Read a store URL; what cannot work is refused by name, never guessed."""
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return _parse_sqlite(url, urlsplit(url))
    if _REDIS.fullmatch(scheme):
        from limpet.stores.redis.url import parse_redis

        return parse_redis(url)
    if scheme in _POSTGRES:
        from limpet.stores.postgres.url import parse_postgres

        return parse_postgres(url)
    close = nearest(scheme, _SCHEMES) if "://" in url else None
    hint = f"did you mean {close}://?" if close else _EXAMPLE
    raise UsageError(f"{redacted(url)!r} is not a store URL", fix=hint)


def is_memory(url: str) -> bool:
    """True for a store that lives and ends with one process."""
    parsed = parse_url(url)
    return isinstance(parsed, SqliteUrl) and parsed.path is None


def located(url: str) -> str:
    """The URL as it is shown to people: without passwords, and of a file the absolute path.

    >>> located("redis://:secret@localhost/0")
    'redis://:***@localhost/0'
    """
    parsed = parse_url(url)
    if not isinstance(parsed, SqliteUrl) or parsed.path is None:
        return redacted(url)
    _, mark, options = url.partition("?")
    return f"sqlite:///{quote(os.path.abspath(parsed.path))}{mark}{options}"


def missing_file(url: str) -> str | None:
    """The absolute path of a SQLite file that is not there: opening that store makes it."""
    parsed = parse_url(url)
    if not isinstance(parsed, SqliteUrl) or parsed.path is None or os.path.exists(parsed.path):
        return None
    return os.path.abspath(parsed.path)


def foreign_file(url: str) -> str | None:
    """The absolute path of a SQLite file with tables of other programs only: opening that store adds ours."""
    parsed = parse_url(url)
    if not isinstance(parsed, SqliteUrl) or parsed.path is None or not os.path.exists(parsed.path):
        return None
    from limpet.stores.sqlite.connection import is_foreign

    path = os.path.abspath(parsed.path)
    return path if is_foreign(path) else None


def _parse_sqlite(url: str, parts: SplitResult) -> SqliteUrl:
    rest = url.partition(":")[2]
    if not rest.startswith("//"):
        fix = f"write sqlite://{rest} for a file in this folder" if rest.startswith("/") else f"write sqlite:///{rest}"
        absolute = f", or sqlite:///{rest} for one at the root" if rest.startswith("/") else ""
        raise UsageError(f"{url!r} has too few slashes", fix=fix + absolute)
    if parts.netloc:
        raise UsageError(
            f"{url!r} names a host, and SQLite has none", fix=f"write sqlite:///{parts.netloc}{parts.path}"
        )
    if parts.fragment:
        raise UsageError(f"{url!r} has a fragment", fix="write # in a file name as %23")
    if parts.path == "/":
        raise UsageError(f"{url!r} names no file", fix=_EXAMPLE)
    path = unquote(parts.path[1:]) if parts.path else None
    if path == ":memory:":
        path = None
    return SqliteUrl(path, **_options(url, parts.query))


def _options(url: str, query: str) -> dict[str, Any]:
    """The options of a sqlite:// URL by name."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _SQLITE:
            close = nearest(name, _SQLITE)
            known = ", ".join(f"{one}={'|'.join([*words][:2])}" for one, words in _SQLITE.items())
            raise InvalidOption(
                f"{url!r} has an unknown option {name!r}",
                fix=f"did you mean {close}?" if close else f"the options of sqlite:// are: {known}",
            )
        if value.lower() not in _SQLITE[name]:
            one, other, *_ = _SQLITE[name]
            raise InvalidOption(f"{url!r} asks for {name}={value!r}", fix=f"write {name}={one} or {name}={other}")
        found[name] = _SQLITE[name][value.lower()]
    return found
