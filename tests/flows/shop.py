"""An app whose tasks run in every kind of place; it is imported by the processes that run some of them."""

from __future__ import annotations

from dataclasses import dataclass

from limpet import Limpet, current_job

app = Limpet("sqlite://")


@dataclass
class Image:
    """A result with a type of its own."""

    name: str
    width: int


@app.task(name="shop.load", retry=1)
async def load(name: str) -> Image:
    return Image(name, 100)


@app.task(name="shop.scale", retry=1, executor="process")
def scale(image: Image, width: int) -> Image:
    return Image(image.name, width)


@app.task(name="shop.album", retry=1, executor="thread")
def album(images: list[Image]) -> str:
    return ", ".join(f"{image.name} {image.width}" for image in images)


@app.task(name="shop.where", retry=1)
async def where(given: str = "") -> str | None:
    return current_job().flow
