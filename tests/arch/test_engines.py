"""The engines have one table of contents: a concern has the same file name in Python, Lua and SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.arch.tree import PACKAGE

STORES: Final = PACKAGE / "stores"

# What an engine does, and where to look for it. A file is named after its concern; a part of one is `concern_part`.
CONCERNS: Final = {
    "enqueue": "new jobs are stored, all of a call or none",
    "unique": "one job holds an idempotency key",
    "graph": "dependents wait for their parents",
    "lanes": "which lanes can be served",
    "turns": "whose turn it is: round robin with weights",
    "wake": "sleeping workers and callers are woken",
    "hand_off": "a lone job goes to a sleeping worker at once",
    "claim": "the verb: a lease for a worker",
    "choose": "which lanes a claim may take from",
    "take": "jobs leave their lanes under a lease",
    "gates": "what gates admit, charge and tell",
    "effect": "what the end of an attempt does to a job",
    "settle": "the verb: tokens are compared, effects applied",
    "hooks": "the end of a job makes the jobs of hooks",
    "give_back": "gates get back what jobs took",
    "notes": "steps, events, and what a job waits for",
    "sessions": "workers that are alive, and silence",
    "operate": "what people ask for: cancel, retry, signal, discard",
    "controls": "named records and logs",
    "prune": "what is over goes",
    "find": "pages of jobs by an index",
    "views": "jobs as people see them",
    "repair": "everything is compared with the jobs",
}

FOLDERS: Final = {
    "sqlite": [STORES / "sqlite"],
    "redis": [STORES / "redis" / "lua", STORES / "redis" / "lua" / "lib"],
    "postgres": [STORES / "postgres" / "sql" / "verbs"],
}

# A concern that an engine has no file for, and why.
LACKS: Final = {
    ("sqlite", "turns"): "core.limits.fair is Python: choose and take call it",
    ("postgres", "hand_off"): "a lone job wakes a worker, which claims it",
}

# What only one engine needs: how it is reached, opened and written.
FOUNDATION: Final = {
    "sqlite": {
        "store": "the protocol's verbs",
        "broadcast": "live events are datagrams",
        "check": "durability as it is",
        "checkpoint": "the write-ahead log is copied beside the writer",
        "connection": "opens the file",
        "guest": "the caller's own transaction",
        "library": "one SQLite library per process",
        "link": "a connection for one user, and forks",
        "sentry": "jobs that came without a wake-up",
        "statements": "loads sql/",
        "tx": "one operation's view of the database",
        "writer": "one thread writes",
        "counts": "counters move with the jobs",
        "schema": "the tables",
    },
    "redis": {
        "base": "numbers and bytes",
        "record": "a job is one record of bytes",
        "tx": "one script's view of the namespace",
    },
    "postgres": {
        "base": "numbers, locks and clocks",
        "pins": "settings that replacing a function drops",
    },
}

# Adapters of the server engines that only one of them needs.
ADAPTERS: Final = {
    "redis": {
        "fields": "a record is bytes: its fields have names",
        "find_by_name": "indexes are walked from here",
        "find_cursor": "indexes are walked from here",
        "find_scan": "indexes are walked from here",
        "keys": "keys have names",
        "record": "a record is bytes",
        "scripts": "loads lua/",
        "server": "Sentinel and Cluster are asked for the server",
    },
    "postgres": {
        "layout": "tables are migrated",
        "migrate": "tables are migrated",
        "pool": "a connection carries one statement at a time",
        "vacuum": "dead rows",
        "wire": "values in PostgreSQL's binary form",
    },
}


def stems(folders: Iterable[Path]) -> set[str]:
    """The names of the files in these folders, without suffix and the number that is their order."""
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in (".py", ".lua", ".sql")]
    return {re.sub(r"^\d+_|_\d+$", "", path.stem) for path in files if path.stem != "__init__"}


def is_of(stem: str, concern: str) -> bool:
    """Whether a file is of a concern: it is the file, or a part."""
    return stem == concern or stem.startswith(f"{concern}_")


@pytest.mark.parametrize("engine", FOLDERS)
def test_every_concern_has_a_file_of_its_name(engine: str) -> None:
    found = stems(FOLDERS[engine])
    missing = {concern for concern in CONCERNS if not any(is_of(stem, concern) for stem in found)}
    assert missing == {concern for name, concern in LACKS if name == engine}


@pytest.mark.parametrize("engine", FOLDERS)
def test_every_file_is_of_a_concern_that_is_known(engine: str) -> None:
    statements = [STORES / "sqlite" / "sql"] if engine == "sqlite" else []
    found, own = stems([*FOLDERS[engine], *statements]), FOUNDATION[engine]
    unknown = {stem for stem in found - own.keys() if not any(is_of(stem, concern) for concern in CONCERNS)}
    assert unknown == set()
    assert own.keys() - found == set(), "they are gone: take them off the list"


def test_adapters_of_the_server_engines_have_the_same_names() -> None:
    redis, postgres = (stems([STORES / engine]) for engine in ADAPTERS)
    assert redis - postgres == ADAPTERS["redis"].keys()
    assert postgres - redis == ADAPTERS["postgres"].keys()


@pytest.mark.parametrize("engine", ADAPTERS)
def test_an_engine_knows_no_other_and_shares_by_the_folder_server(engine: str) -> None:
    """Names that both engines would write: the shared folder has them once."""
    shared = {"Lost", "Silent", "PerLoop", "pause", "fail", "unsure", "closed"}
    defined = re.compile(r"^(?:async )?(?:class|def) (\w+)", re.MULTILINE)
    found = {name for path in (STORES / engine).glob("*.py") for name in defined.findall(path.read_text())}
    assert found & shared == set()
