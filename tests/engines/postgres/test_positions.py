"""What Python reads and writes by position has the names and the order that the server gives it."""

from __future__ import annotations

import re

from limpet.stores.postgres import enqueue
from limpet.stores.postgres.claim import BY_JOB, Handed
from limpet.stores.postgres.client import Posted
from limpet.stores.postgres.layout import migrations, verbs
from limpet.stores.postgres.views import Candidates, JobRow


def plain(text: str) -> str:
    return re.sub(r"--.*", "", text)


def type_fields(name: str) -> dict[str, str]:
    """The fields of a type, in order, and the type of each."""
    texts = "\n".join(plain(each.text) for each in migrations())
    found = re.search(rf"CREATE TYPE lp\.{name} AS \((.*?)\n\);", texts, re.DOTALL)
    assert found is not None, name
    return dict(re.findall(r"(\w+) (\w+(?:\[\])?)", found[1]))


def head(function: str) -> str:
    """What a function takes and answers."""
    texts = "\n".join(plain(text) for _, text in verbs().files)
    found = re.search(rf"FUNCTION lp\.{function}\((.*?)\bAS \$\$", texts, re.DOTALL)
    assert found is not None, function
    return found[1]


def test_a_batch_is_written_as_the_server_has_it() -> None:
    assert list(enqueue.FIELDS.items()) == list(type_fields("batch").items())


def test_handed_jobs_are_read_as_the_server_has_them() -> None:
    assert Handed._fields == tuple(type_fields("handed"))
    assert not any(name.startswith(("input_", "note_")) for name in Handed._fields[:BY_JOB])
    assert all(name.startswith(("input_", "note_")) for name in Handed._fields[BY_JOB:])


def test_views_are_read_as_the_server_has_them() -> None:
    (table,) = re.findall(r"RETURNS TABLE \((.*)\)", head("jobs_1"), re.DOTALL)
    assert JobRow._fields == tuple(re.findall(r"(\w+) \w+(?:\[\])?(?:,|\s|$)", table))


def test_candidates_are_read_as_the_server_has_them() -> None:
    first, *columns, last = re.findall(r"OUT (\w+)", head("candidates_1"))
    assert (first, Candidates._fields, last) == ("seen", tuple(columns), "bytes")


def test_what_was_posted_comes_last() -> None:
    posted = [f"w_{name}" for name in Posted._fields]
    texts = "\n".join(plain(text) for _, text in verbs().files)
    heads = {name: head(name) for name in re.findall(r"FUNCTION lp\.(\w+)\(", texts) if "OUT w_" in head(name)}
    assert len(heads) > 10
    assert [name for name, text in heads.items() if re.findall(r"OUT (\w+)", text)[-4:] != posted] == []
