"""Prints the pins of everything a checkout needs, from what is installed: `make constraints` writes them down.

Only the closure of pyproject.toml is pinned, so a tool that was installed by hand does not end up
in every environment.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
# Exact versions for checkouts and CI; users of the package are bound by pyproject.toml alone.
# Written by `make constraints`. No index addresses: every machine knows its own.
"""


def wanted() -> list[Requirement]:
    """What pyproject.toml asks for: the package, its extras, and the dev group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra in project["project"]["optional-dependencies"].values():
        names += extra
    requirements = [Requirement(name) for name in names]
    return [one for one in requirements if one.name != project["project"]["name"]]  # `all` names the other extras


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Every distribution those need on this machine, with its installed version."""
    pins: dict[str, str] = {"pip": metadata.version("pip")}
    pending = [(requirement, "") for requirement in requirements]
    while pending:
        requirement, extra = pending.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        known = name in pins
        pins[name] = metadata.version(name)
        if not known or requirement.extras:
            needs = [Requirement(text) for text in metadata.requires(name) or ()]
            pending += [(need, want) for need in needs for want in (*requirement.extras, "")]
    return pins


def main() -> None:
    """Write the pins to standard output, sorted, so that a change reads as a diff."""
    pins = closure(wanted())
    sys.stdout.write(HEADER + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins)))


if __name__ == "__main__":
    main()
