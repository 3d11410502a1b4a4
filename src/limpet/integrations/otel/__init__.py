"""Makes OpenTelemetry spans of jobs: where they are enqueued, of every attempt, and of every durable step."""

from __future__ import annotations

from limpet.integrations.otel.instrument import instrument

__all__ = ["instrument"]
