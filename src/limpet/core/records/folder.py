"""Decides what is told of a folder that was imported or exported."""

from __future__ import annotations

from limpet.core.records.record import Record


class FolderProblem(Record, frozen=True, kw_only=True):
    """What could not be taken over, or only in part."""

    file: str
    entry: str | None  # its id; None: the file as a whole
    text: str


class FolderImport(Record, frozen=True, kw_only=True):
    """What became of the entries of a folder."""

    stored: dict[str, int]  # new jobs, by file
    existing: int  # jobs that were there before
    problems: tuple[FolderProblem, ...]
    refused: int  # entries that are no jobs: they are kept in rejected.json


class FolderExport(Record, frozen=True, kw_only=True):
    """What was written."""

    entries: dict[str, int]  # by file
    written: tuple[str, ...]  # files that have changed
