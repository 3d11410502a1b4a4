"""What jobs say waits in a notebook, and its writer is told once of what should be seen soon."""

from __future__ import annotations

import pytest

from limpet.core.jobs.lease import Note
from limpet.runtime.settler import NOTES_PER_BEAT, Notebook

JOB = b"j" * 16


def progress(done: int) -> Note:
    return Note("progress", "", b"%d" % done)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def notebook(told: list[str]) -> Notebook:
    notebook = Notebook()
    notebook.on_news = lambda: told.append("news")
    return notebook


def test_the_writer_is_told_of_the_first_note_since_it_wrote(notebook: Notebook, told: list[str]) -> None:
    for done in range(1_000):
        notebook.add(JOB, 1, progress(done), soon=True)
    assert told == ["news"]
    assert notebook.take() == ((JOB, 1, progress(999)),)
    notebook.add(JOB, 1, progress(1_000), soon=True)
    assert told == ["news", "news"], "what is said while a beat is under way needs the next one"


def test_costs_wait_for_the_regular_beat(notebook: Notebook, told: list[str]) -> None:
    notebook.add(JOB, 1, Note("spent", "", b"{}"))
    assert told == []
    notebook.add(JOB, 1, progress(1), soon=True)
    notebook.add(JOB, 1, Note("spent", "", b"{}"))
    assert told == ["news"]
    assert [note.kind for _, _, note in notebook.take()] == ["spent", "progress"]


def test_a_beat_takes_so_many_and_the_rest_comes_soon_after(notebook: Notebook) -> None:
    for number in range(NOTES_PER_BEAT + 1):
        notebook.add(number.to_bytes(16), 1, progress(1), soon=True)
    assert len(notebook.take()) == NOTES_PER_BEAT
    assert notebook.overflows
    notebook.written()
    assert len(notebook.take()) == 1
    assert not notebook.overflows


def test_a_note_that_could_not_be_written_gives_way_to_a_newer_one(notebook: Notebook) -> None:
    notebook.add(JOB, 1, progress(1), soon=True)
    notebook.take()
    notebook.add(JOB, 1, progress(2), soon=True)
    notebook.put_back()
    assert notebook.take() == ((JOB, 1, progress(2)),)
