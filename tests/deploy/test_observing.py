"""Dashboard, rules and autoscaler ask for what there is: a renamed metric would leave them empty in silence."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from limpet.core.metrics.family import FAMILIES
from limpet.core.records.scale import ScaleRecord
from limpet.server.routes.stats import Scale, scale
from limpet.server.table import ROUTES
from tests.deploy.observing import DASHBOARD, SCALED, documents, exposed_names, expressions, panels, rules, used
from tools.metrics_reference import PAGE, page


def test_the_page_of_metrics_is_up_to_date() -> None:
    """Drawn from the table; `python tools/metrics_reference.py` writes it."""
    assert PAGE.read_text() == page(), "run python tools/metrics_reference.py"


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    asked = {name for expression in expressions() for name in used(expression)}
    assert asked - exposed_names() == set()
    shown = {name.removesuffix("_bucket").removesuffix("_total") for name in asked}
    assert FAMILIES.keys() - shown == set(), "what is exposed is shown somewhere"


def test_the_dashboard_can_be_drawn() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    every = dashboard["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert names == {"datasource", "queue", "task"}
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len({*refs}) == len(refs)


def test_rules_ask_for_metrics_that_exist_and_say_what_to_do() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        assert used(rule["expr"]) - exposed_names() - recorded == set(), rule
        if "alert" in rule:
            assert rule["alert"].startswith("Limpet")
            assert {*rule["annotations"]} == {"summary", "fix"}
            assert rule["labels"]["severity"] in ("warning", "critical")


# What KEDA needs of a ScaledObject, and what a `metrics-api` trigger takes: its own schema is in a cluster only.
SCALED_OBJECT: dict[str, type] = {
    "minReplicaCount": int,
    "maxReplicaCount": int,
    "pollingInterval": int,
    "cooldownPeriod": int,
    "scaleTargetRef": dict,
    "advanced": dict,
    "triggers": list,
}
METRICS_API = {"url", "valueLocation", "targetValue", "activationTargetValue", "authMode"}


def by_kind() -> dict[str, Any]:
    return {document["kind"]: document for document in documents(SCALED.read_text())}


def test_the_scaled_object_has_the_shape_that_keda_takes() -> None:
    found = by_kind()
    scaled, auth, secret = found["ScaledObject"], found["TriggerAuthentication"], found["Secret"]
    assert scaled["apiVersion"] == auth["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert spec.keys() <= SCALED_OBJECT.keys()
    assert all(isinstance(value, SCALED_OBJECT[name]) for name, value in spec.items())
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("metrics-api", "AverageValue")
    assert trigger["metadata"].keys() <= METRICS_API
    assert all(isinstance(value, str) for value in trigger["metadata"].values()), "KEDA takes texts only"
    assert trigger["authenticationRef"]["name"] == auth["metadata"]["name"]
    (reference,) = auth["spec"]["secretTargetRef"]
    assert (reference["parameter"], reference["name"]) == ("token", secret["metadata"]["name"])
    assert reference["key"] in secret["stringData"]


def test_the_scaled_object_asks_for_what_the_server_answers() -> None:
    metadata = by_kind()["ScaledObject"]["spec"]["triggers"][0]["metadata"]
    url = urlsplit(metadata["url"])
    (route,) = (each for each in ROUTES if each.handler is scale)
    assert url.path == route.full_path
    msgspec.convert(dict(parse_qsl(url.query)), Scale, strict=False)
    assert metadata["valueLocation"] in ScaleRecord.__struct_fields__
