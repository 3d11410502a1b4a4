"""Finds the app that a command means, and gives it the store that the command line names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.terminal import Terminal
from holdfast.config import load_config
from holdfast.core.errors import InvalidOption, UsageError

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def app_reference(flag: str | None) -> str | None:
    """`module:attr` from the command line, HOLDFAST_APP or the configuration file."""
    setting = load_config(flag_app=flag).app
    return None if setting is None else setting.value


def load(terminal: Terminal, reference: str) -> Holdfast:
    """The app behind a reference, on the command's store."""
    from holdfast.app import Holdfast
    from holdfast.runtime.loading import load_app

    app = load_app(reference)
    if not isinstance(app, Holdfast):
        raise InvalidOption(f"{reference!r} is a {type(app).__name__}, not an app", fix="name a Holdfast object")
    app.rebind(terminal.flag_url, namespace=terminal.flag_namespace)
    return app


def nameless(terminal: Terminal) -> Holdfast:
    """An app without tasks of its own, on the command's store: enqueues by name."""
    from holdfast.app import Holdfast

    app = Holdfast()
    app.rebind(terminal.flag_url, namespace=terminal.flag_namespace)
    return app


def refuse_memory(app: Holdfast, what: str) -> None:
    """A store in memory belongs to one process, and a command line is another one."""
    from holdfast.stores.open import parse_url, redacted

    if parse_url(app.url).path is None:
        raise UsageError(
            f"{redacted(app.url)} is a store in memory: {what}", fix="name a file: --url sqlite:///jobs.db"
        )
