"""Finds the app that a command means, and gives it the store that the command line names."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, cast

from limpet.cli.terminal import Terminal
from limpet.config import load_config
from limpet.core.errors import UsageError

if TYPE_CHECKING:
    from limpet.app import Limpet


def app_reference(flag: str | None) -> str | None:
    """`module:attr` from the command line, LIMPET_APP or the configuration file."""
    setting = load_config(flag_app=flag).app
    return None if setting is None else setting.value


def load(terminal: Terminal, reference: str) -> Limpet:
    """The app behind a reference, on the command's store."""
    from limpet.runtime.loading import load_app

    # What a module prints when it is imported is no answer of ours, and no line of a JSON log.
    with open(os.devnull, "w") if terminal.json_log else nullcontext(sys.stderr) as place, redirect_stdout(place):
        app = cast("Limpet", load_app(reference))
        app.parts()  # also imports the modules that it includes
    app.rebind(terminal.flag_url, namespace=terminal.flag_namespace)
    return app


def nameless(terminal: Terminal) -> Limpet:
    """An app without tasks of its own, on the command's store: enqueues by name."""
    from limpet.app import Limpet

    app = Limpet()
    app.rebind(terminal.flag_url, namespace=terminal.flag_namespace)
    return app


def refuse_memory(app: Limpet, what: str) -> None:
    """A store in memory belongs to one process, and a command line is another one."""
    from limpet.stores.open import is_memory, redacted

    if is_memory(app.url):
        raise UsageError(
            f"{redacted(app.url)} is a store in memory: {what}", fix="name a file: --url sqlite:///jobs.db"
        )
