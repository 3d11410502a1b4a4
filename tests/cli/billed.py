"""An app that says what errors mean, for the command that asks."""

from __future__ import annotations

from limpet import Limit, Limpet
from limpet.core.endings.verdict import Kind


class Odd(Exception):
    """Known to one function."""


class Fixed(Exception):
    """Keeps its status to itself."""

    @property
    def status_code(self) -> int:
        return 418


ODD = Odd()


def judge(error: BaseException) -> Kind | None:
    return "transient" if isinstance(error, Odd) else None


def nonsense(error: BaseException) -> Kind | None:
    return "sometimes"  # type: ignore[return-value]  # that is the mistake


def broken(error: BaseException) -> Kind | None:
    return "permanent" if 1 / 0 else None


app = Limpet("sqlite://", classify=[{ValueError: "permanent"}, judge])


@app.task(
    name="ask",
    classify={"ValueError": "timeout"},
    limits=[Limit("pool", concurrency=9), Limit("llm:{team}", rate="10/m", learns=True)],
    retry=lambda attempt, error: 5,
    breaker=True,
)
async def ask(team: str) -> None:
    """Asks a model."""


@app.task(name="once", retry=None, classify=[nonsense, broken])
async def once() -> None:
    """Is tried once."""
