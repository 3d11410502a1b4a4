"""Writes metrics as text that Prometheus reads, with prometheus-client, which is loaded when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from limpet.core.errors import UsageError
from limpet.core.metrics.family import FAMILIES, LE, Sample, Times, Value, cumulated
from limpet.stores.extras import install_line

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Exposition:
    """The text of metrics, in the form that the asker names: exemplars are in OpenMetrics only.

    >>> Exposition().text([], "text/plain")[0]
    b''
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import core, exposition, samples
        except ImportError as error:
            raise UsageError("metrics need a package that is not installed", fix=install_line("metrics")) from error
        self._core: Any = core
        self._exposition: Any = exposition
        self._samples: Any = samples

    def text(self, values: Iterable[Value], accept: str) -> tuple[bytes, str]:
        """The text and its media type. Takes a tenth of a second for hundreds of tasks: not in a loop."""
        encoder, kind = self._exposition.choose_encoder(accept)
        return encoder(_Collected(list(self._metrics(values)))), kind

    def _metrics(self, values: Iterable[Value]) -> Iterator[Metric]:
        by_name: dict[str, list[Value]] = {}
        for value in values:
            by_name.setdefault(value.name, []).append(value)
        for name, family in FAMILIES.items():
            if name not in by_name:
                continue
            form = getattr(self._core, f"{family.kind.title()}MetricFamily")
            metric = form(name, family.help, labels=family.labels)
            for value in by_name[name]:
                if isinstance(value, Sample):
                    metric.add_metric(value.labels, value.value)
                else:
                    metric.add_metric(value.labels, self._buckets(value), value.sum_s)
            yield metric

    def _buckets(self, times: Times) -> list[tuple[Any, ...]]:
        names = [*(self._exposition.floatToGoString(bound) for _, bound in LE), "+Inf"]
        found: list[tuple[Any, ...]] = []
        for position, (name, count) in enumerate(zip(names, cumulated(times.buckets), strict=True)):
            seen = times.exemplars.get(position)
            if seen is None:
                found.append((name, count))
            else:
                exemplar = self._samples.Exemplar({"trace_id": seen.trace}, seen.value_s, seen.at_s)
                found.append((name, count, exemplar))
        return found


class _Collected:
    """What an encoder asks: these metrics, and no state of the process."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics
