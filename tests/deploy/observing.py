"""What the tests of dashboard, rules and autoscaler share: the files, the names they use, and all names there are."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from limpet.core.metrics.family import FAMILIES
from tests.arch.tree import ROOT

DEPLOY: Final = ROOT / "deploy"
RULES: Final = DEPLOY / "prometheus" / "limpet.rules.yml"
DASHBOARD: Final = DEPLOY / "grafana" / "limpet.json"
SCALED: Final = DEPLOY / "keda" / "scaledobject.yaml"

_yaml: Any = importlib.import_module("yaml")  # comes with schemathesis, without types
_NAME: Final = re.compile(r"\blimpet[_:][\w:]+")
_PARTS: Final = ("_bucket", "_count", "_sum")


def documents(text: str) -> list[Any]:
    """Every document of a YAML file."""
    return [each for each in _yaml.safe_load_all(text) if each is not None]


def rules() -> list[dict[str, Any]]:
    """Every rule, of all groups."""
    return [rule for (file,) in [documents(RULES.read_text())] for group in file["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that draws something."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """Every PromQL expression of the dashboard, with its variables filled in."""
    for panel in panels():
        for target in panel["targets"]:
            filled = target["expr"].replace("$__rate_interval", "1m")
            yield re.sub(r"\$\w+", ".*", filled)


def exposed_names() -> set[str]:
    """Every name under which something is exposed."""
    found = {family.exposed for family in FAMILIES.values()}
    return found | {f"{each.name}{part}" for each in FAMILIES.values() if each.kind == "histogram" for part in _PARTS}


def used(expression: str) -> set[str]:
    """The names of our metrics that it asks for."""
    return set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
