"""Finds the app that a command means, and gives it the store that the command line names."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, cast

from holdfast.cli.terminal import Terminal
from holdfast.config import load_config
from holdfast.core.errors import UsageError

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def app_reference(flag: str | None) -> str | None:
    """`module:attr` from the command line, HOLDFAST_APP or the configuration file."""
    setting = load_config(flag_app=flag).app
    return None if setting is None else setting.value


def load(terminal: Terminal, reference: str) -> Holdfast:
    """The app behind a reference, on the command's store."""
    from holdfast.runtime.loading import load_app

    # What a module prints when it is imported is no answer of ours.
    with redirect_stdout(sys.stderr):
        app = cast("Holdfast", load_app(reference))
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
    from holdfast.stores.open import is_memory, redacted

    if is_memory(app.url):
        raise UsageError(
            f"{redacted(app.url)} is a store in memory: {what}", fix="name a file: --url sqlite:///jobs.db"
        )
