"""Says which extra brings a package that is missing, and the line that installs it here."""

from __future__ import annotations

import json
from typing import Final

# The packages that extras bring, such as each engine's driver, and the extra that installs each.
_EXTRAS: Final = {
    "hiredis": "redis",
    "jsonschema": "agents",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "opentelemetry": "otel",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "sentry_sdk": "sentry",
    "starlette": "server",
    "uvicorn": "server",
}


def extra_of(error: ImportError, otherwise: str | None = None) -> str | None:
    """The extra whose package could not be imported, if it is one of ours.

    psycopg names nothing when the library behind it is missing: then it is `otherwise`.
    """
    return otherwise if error.name is None else _EXTRAS.get(error.name.partition(".")[0])


def install_line(extra: str) -> str:
    """What to type for an extra: of a release, or in the checkout that was installed to be edited."""
    return f"pip install -e '.[{extra}]'" if _is_editable() else f"pip install 'limpet[{extra}]'"


def _is_editable() -> bool:
    """True where pip was told to leave the files in their checkout: its note beside our metadata says so."""
    from importlib.metadata import PackageNotFoundError, distribution  # lazy: an error alone asks for it

    try:
        note = distribution("limpet").read_text("direct_url.json")
    except PackageNotFoundError:  # only the sources are on the path
        return False
    return note is not None and bool(json.loads(note).get("dir_info", {}).get("editable"))
