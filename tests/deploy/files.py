"""Reads what `deploy/` holds: the steps of a Dockerfile, manifests, compose files, units, and the commands in them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.arch.tree import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "app" / "Dockerfile"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
COMPOSE = sorted((DEPLOY / "compose").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


class Step(NamedTuple):
    """One instruction of a Dockerfile."""

    word: str
    rest: str


def steps() -> list[Step]:
    """The instructions, with their lines joined."""
    lines = re.sub(r"\\\n", " ", DOCKERFILE.read_text()).splitlines()
    found = (line.partition(" ") for line in lines if line.strip() and not line.startswith("#"))
    return [Step(word, rest.strip()) for word, _, rest in found]


def only(word: str) -> str:
    """What the last instruction of that name says."""
    return [step.rest for step in steps() if step.word == word][-1]


def image_command() -> list[str]:
    """What the image runs by itself, after `limpet`."""
    assert json.loads(only("ENTRYPOINT")) == ["limpet"]
    return [str(word) for word in json.loads(only("CMD"))]


def resources() -> Iterator[dict[str, Any]]:
    """Every resource of the manifests."""
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def pods() -> dict[str, dict[str, Any]]:
    """The pods of the manifests, by the name of what makes them."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in resources()
        if each["kind"] in ("Deployment", "Job")
    }


def composed(path: Path) -> dict[str, dict[str, Any]]:
    """The services of a compose file that run our image."""
    services = yaml.safe_load(path.read_text())["services"]
    return {name: service for name, service in services.items() if service.get("image") == "shop"}


def unit(path: Path) -> dict[str, str]:
    """What the section [Service] says."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    parser.read_string(path.read_text())
    return dict(parser["Service"])


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of `limpet` that stands in these files, and where."""
    yield "Dockerfile", image_command()
    for name, pod in pods().items():
        yield name, [str(word) for word in pod["containers"][0]["args"]]
    for path in COMPOSE:
        for name, service in composed(path).items():
            yield f"{path.stem} {name}", [str(word) for word in service["command"]]
    for path in UNITS:
        program, *words = shlex.split(unit(path)["ExecStart"])
        assert program.endswith("/limpet")
        yield path.stem, words
