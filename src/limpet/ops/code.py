"""Tells people which code live workers run, and where two of them take other arguments for one task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from limpet.core.endings.refusal import about
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.view import Finding
from limpet.core.text.duration import iso


class Variant(Struct, frozen=True):
    """One signature of a task among live workers."""

    signature: str
    code_versions: tuple[str, ...]
    workers: int
    since_ms: int  # when the first of them started

    def __str__(self) -> str:
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        return f"{self.signature} in {workers} (code {', '.join(self.code_versions)}, since {iso(self.since_ms)})"


class Differing(Struct, frozen=True):
    """A task that live workers know with several signatures; the oldest comes first."""

    task: str
    variants: tuple[Variant, ...]

    def __str__(self) -> str:
        return f"task {self.task} has {len(self.variants)} signatures: {'; '.join(map(str, self.variants))}"


def differing(sessions: Iterable[SessionView]) -> list[Differing]:
    """The tasks of which live workers have several signatures, by name."""
    found: dict[str, dict[str, list[SessionView]]] = {}
    for session in sessions:
        for task, signature in about(session).signatures.items():
            found.setdefault(task, {}).setdefault(signature, []).append(session)
    return [
        Differing(task, tuple(sorted((_variant(*each) for each in by.items()), key=lambda variant: variant.since_ms)))
        for task, by in sorted(found.items())
        if len(by) > 1
    ]


def _variant(signature: str, sessions: Sequence[SessionView]) -> Variant:
    versions = tuple(sorted({about(session).code_version for session in sessions}))
    return Variant(signature, versions, len(sessions), min(session.started_at_ms for session in sessions))


def code_findings(sessions: Iterable[SessionView]) -> Iterable[Finding]:
    """A warning for each of these tasks: jobs that fit only one signature wait for workers that have it."""
    for each in differing(sessions):
        fix = "finish the deployment; until then jobs that one refuses go to the other"
        yield Finding("warning", "two_signatures", str(each), fix)
