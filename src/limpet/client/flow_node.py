"""One node of a flow that is asked for: the jobs it refers to, and the job it becomes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from limpet.client.flow_handle import NodeHandle
from limpet.client.work import JobSpec, Work
from limpet.core.errors import InvalidOption, NotSerialisable, UsageError
from limpet.core.flows.refs import flat
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job
from limpet.core.tasks.codec import PLAIN, looked_into
from limpet.core.tasks.task import build_job


class Node:
    """A node that is asked for."""

    __slots__ = ("after", "handle", "name", "spec", "values")

    def __init__(
        self, name: str, spec: JobSpec[Any], values: dict[str, Any], after: list[bytes | str], handle: NodeHandle[Any]
    ) -> None:
        self.name = name
        self.spec = spec
        self.values = values
        self.after = after  # ids, and names of nodes that may come later
        self.handle = handle

    def references(self) -> list[bytes]:
        """The jobs whose results stand in its arguments, however deep."""
        return [id for name, value in self.values.items() for id in self._references(name, value)]

    def _references(self, name: str, value: Any) -> list[bytes]:
        if type(value) in PLAIN:
            return []
        try:
            found = looked_into(value, name, allow_bytes=True, allow_secrets=True)
        except NotSerialisable as error:
            raise self._refused(error) from error
        # A work inside of a record has no node: it is refused where the arguments are encoded.
        return [id for ref in found if not isinstance(ref, Work) for id in flat(ref.spread())]

    def job(self, flow: bytes, after: tuple[bytes, ...], meta: bytes) -> tuple[Job, tuple[GateRule, ...]]:
        """Its job, which waits for `after`, and the limits that the job names."""
        spec = self.spec
        try:
            if spec.options.conn is not None:
                raise InvalidOption(
                    "conn= of one job: all jobs of a flow share one transaction or none", fix="flow.enqueue(conn=...)"
                )
            signature = spec.spec.signature
            if not signature.required.issubset(self.values):
                signature.bind_named(self.values)  # raises, naming what is missing
            options = spec.client.shaped(spec.spec, self.values, replace(spec.options, after=after))
            return build_job(spec.spec, self.values, options, id=self.handle.raw, flow=flow, meta=meta)
        except UsageError as error:
            raise self._refused(error) from error

    def _refused(self, error: UsageError) -> UsageError:
        """The same refusal, saying of which node."""
        return type(error)(f"node {self.name!r}: {error.message}", fix=error.fix)
