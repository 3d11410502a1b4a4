"""Numbers and effects have names in the statements of PostgreSQL: a reader need not know what `state = 5` is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from limpet.stores.postgres.layout import FOLDER
from limpet.stores.postgres.names import EFFECTS, NAMES, resolve
from tests.arch.tree import named, written_files

FILES = [path for path in written_files(FOLDER) if path.suffix == ".sql"]
# What is compared with a number or joined to its bits; counters as text; what a function of ours is called with.
BARE = re.compile(
    r"(?<!<< )(?<!<< \w\.)\b(?:\w*state|what|kind|mode)\b(?:\[\w+\])? "
    r"(?:=|<>|<=|>=|<|>|:=|WHEN|BETWEEN|(?:NOT )?IN) \(?\d"
    r"|\b\w*(?:flags|told|fresh) (?:&|\|) ~?\d"
    r"|\bwhats?\b.*'{\d"
    r"|lock\w*\(\d"
    r"|INTO lp\.post \(kind[^)]*\)(?: VALUES \(| SELECT (?:DISTINCT )?)\d"
    r"|count\w*\([\w.]+(?:\[\w+\])?, \d+, -?\d"
)
# How attempts end, and what people are told of that (core/endings/effect.py).
SAID = re.compile(
    "'(?:succeeded|retried|dead|cancelled|released|snoozed|suspended|lost)'"
    r"|'[^']*(?:died|silent|deadline|proven|limpet\.[A-Z])[^']*'"
)


def code_of(path: Path) -> list[tuple[int, str]]:
    """The lines of a file without their comments."""
    return [(number, re.sub(r"--.*", "", line)) for number, line in enumerate(path.read_text().splitlines(), 1)]


def test_what_a_statement_compares_a_code_with_has_a_name() -> None:
    found = [f"{named(path)}:{at}: {line.strip()}" for path in FILES for at, line in code_of(path) if BARE.search(line)]
    assert found == []


def test_every_name_is_used() -> None:
    texts = "\n".join(path.read_text() for path in FILES)
    python = "\n".join(path.read_text() for path in written_files(FOLDER.parent) if path.suffix == ".py")
    used = set(re.findall(r":([A-Z][A-Z0-9_]*)\b", texts)) | set(re.findall(r'NAMES\["(\w+)"\]', python))
    said = {"EXISTING", "REPLACE", "DEBOUNCE", "IF_FAILED_CANCEL", "IF_FAILED_RUN", "IF_FAILED_WAIT"}  # by core's words
    assert NAMES.keys() - used - said == set()
    assert EFFECTS.keys() - used == set()


def test_a_name_becomes_its_number() -> None:
    assert resolve("state = :READY AND whats && '{:DEAD,:ENQUEUED}'::smallint[]") == (
        "state = 2 AND whats && '{5,10}'::smallint[]"
    )


def test_an_effect_of_core_becomes_a_text_of_sql() -> None:
    assert resolve("lp.to_effect(:EFFECT_LEFT)") == ("""lp.to_effect('{"state":2,"word":"released","unspent":true}')""")
    assert resolve(EFFECTS["EFFECTS_STOPPED"]) == EFFECTS["EFFECTS_STOPPED"], "it is looked at once more when it is run"


def test_no_statement_says_how_an_attempt_ended() -> None:
    """Core does, once for all engines: what it has made beforehand is put in by name."""
    found = [f"{named(path)}:{at}: {line.strip()}" for path in FILES for at, line in code_of(path) if SAID.search(line)]
    assert found == []


def test_what_only_looks_like_a_name_stays() -> None:
    for text in ("queue:Q and task:T", "a::READY", "v_ids[:v_last]", "p[1:]", "'limit:KEY'"):
        assert resolve(text) == text


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r":RAEDY stands for nothing"):
        resolve("SELECT :RAEDY")
