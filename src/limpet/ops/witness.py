"""Says what live workers saw become of their store: it was emptied, replaced or set back while they worked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.view import Finding
from limpet.core.jobs.witness import FIELD, Change, Report


class Info(Struct, rename={"report": FIELD}):
    """The part of what a session says about itself that is read here; agents say nothing of it."""

    report: Report | None = None


_read = msgspec.json.Decoder(Info).decode


def changed_stores(sessions: Iterable[SessionView]) -> Iterator[Finding]:
    """One finding for each change, however many workers saw it."""
    seen: dict[Change, list[str]] = {}
    for session in sessions:
        for each in _changes(session.info):
            seen.setdefault(each, []).append(session.session)
    for kind in ("other", "older"):
        changes = [each for each in seen if each.kind == kind]
        if changes:
            last = max(changes, key=lambda each: each.now.token)
            workers = {name for each in changes for name in seen[each]}
            text = f"{last.text}; live workers that saw it: {len(workers)}"
            yield Finding("error", f"store_{kind}", text, f"{last.fix}; workers say this until they are restarted")


def _changes(info: bytes) -> tuple[Change, ...]:
    try:
        report = _read(info).report
    except msgspec.DecodeError:
        return ()
    return () if report is None else report.changes
