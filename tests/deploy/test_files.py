"""The files in `deploy/` say what the tools that read them accept, and what our own commands understand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from limpet.cli.root import Root
from limpet.core.text.duration import to_ms
from tests.arch.tree import ROOT, named
from tests.deploy.files import (
    COMPOSE,
    MANIFESTS,
    UNITS,
    commands,
    composed,
    image_command,
    only,
    pods,
    resources,
    steps,
    unit,
)
from tools.debian import unpack

KUBERNETES: Final = "1.37"
END_S: Final = 5  # that the end of a worker takes beyond its grace

# Debian's program and what it needs of Python's packages.
DOCKER_COMPOSE: Final = (
    *("docker-compose", "python3-docker", "python3-dockerpty", "python3-docopt", "python3-dotenv", "python3-texttable"),
    *("python3-websocket", "python3-jsonschema", "python3-yaml", "python3-requests", "python3-distro", "python3-attr"),
    *("python3-pyrsistent", "python3-urllib3", "python3-certifi", "python3-chardet", "python3-idna", "python3-six"),
    *("python3-charset-normalizer", "python3-pkg-resources", "libyaml-0-2", "python3-packaging", "python3-click"),
)


@pytest.mark.parametrize(("where", "words"), list(commands()), ids=[where for where, _ in commands()])
def test_every_command_is_one_that_limpet_understands(where: str, words: list[str]) -> None:
    root = Root("limpet")
    with click.Context(root, info_name="limpet") as context:
        command = root.get_command(context, words[0])
        assert command is not None
        command.make_context(words[0], list(words[1:]), parent=context)


def grace_s(words: list[str]) -> float:
    """The grace that a worker is given."""
    return to_ms(words[words.index("--grace") + 1], what="grace") / 1000


# -- the image


def test_the_image_runs_without_root_and_writes_nothing_but_its_folder() -> None:
    user, _, group = only("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert [step.rest for step in steps() if step.word == "FROM"][-1] == "python:3.12-slim"
    assert not [step for step in steps() if step.word == "COPY" and "--chown" in step.rest], "it could change its code"
    assert image_command()[:1] == ["worker"]


# -- Kubernetes


@pytest.mark.parametrize("resource", list(resources()), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_a_cluster_would_take_the_manifest(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def test_pods_end_in_time_and_are_probed_where_they_answer() -> None:
    for name, pod in pods().items():
        (container,) = pod["containers"]
        words = [str(word) for word in container["args"]]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        if words[0] == "worker":
            assert pod["terminationGracePeriodSeconds"] >= grace_s(words) + END_S, name
            assert f"0.0.0.0:{ports['probes']}" in words, "the cluster asks from outside"
        for probe in ("readinessProbe", "livenessProbe"):
            if (asked := container.get(probe)) is not None:
                assert asked["httpGet"]["port"] in ports
                assert asked["httpGet"]["path"] == {"readinessProbe": "/readyz", "livenessProbe": "/healthz"}[probe]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"], "the roster of a worker lies there"
        assert str(pod["securityContext"]["runAsUser"]) == only("USER").partition(":")[0]


def test_what_a_disruption_spares_is_what_is_deployed() -> None:
    made = {each["metadata"]["name"]: each for each in resources() if each["kind"] == "Deployment"}
    spared = {each["metadata"]["name"]: each for each in resources() if each["kind"] == "PodDisruptionBudget"}
    assert made.keys() == spared.keys()
    for name, budget in spared.items():
        assert budget["spec"]["selector"] == made[name]["spec"]["selector"]
        labels = made[name]["spec"]["template"]["metadata"]["labels"]
        assert budget["spec"]["selector"]["matchLabels"] == labels
        assert made[name]["spec"]["replicas"] > 1, "with one the budget would stop every drain of a node"


# -- compose


@pytest.mark.parametrize("path", COMPOSE, ids=[path.stem for path in COMPOSE])
def test_composed_services_end_in_time_and_have_no_rights(path: Path) -> None:
    services = composed(path)
    assert {"worker", "serve"} <= services.keys()
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"] == ["/tmp"]
    worker = services["worker"]
    words = [str(word) for word in worker["command"]]
    assert to_ms(worker["stop_grace_period"], what="stop") / 1000 >= grace_s(words) + END_S
    place = words[words.index("--probe-port") + 1]
    assert f"http://{place}/readyz" in " ".join(worker["healthcheck"]["test"])
    assert all(port.startswith("127.0.0.1:") for port in services["serve"]["ports"])


@pytest.fixture(scope="module")
def docker_compose(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """How it is called: the machine's own, or Debian's, unpacked."""
    if (found := shutil.which("docker-compose")) is not None:
        return [found], {}
    root = tmp_path_factory.mktemp("compose")
    if not unpack(DOCKER_COMPOSE, root):
        pytest.fail("install docker-compose: Debian's packages cannot be unpacked here")
    libraries = {
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": os.pathsep.join(str(path.parent) for path in root.rglob("libyaml*.so*")),
    }
    return ["/usr/bin/python3", str(root / "usr/bin/docker-compose")], libraries


@pytest.mark.matrix("Debian's docker-compose is unpacked for it")
@pytest.mark.parametrize("path", COMPOSE, ids=[path.stem for path in COMPOSE])
def test_docker_compose_reads_the_file(path: Path, docker_compose: tuple[list[str], dict[str, str]]) -> None:
    command, libraries = docker_compose
    env = {**os.environ, **libraries, "POSTGRES_PASSWORD": "secret"}
    words = [*command, "-f", str(path), "config"]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "image: shop" in ran.stdout


# -- systemd


@pytest.mark.parametrize("path", UNITS, ids=[path.stem for path in UNITS])
def test_units_are_notified_and_end_in_time(path: Path, tmp_path: Path) -> None:
    found = unit(path)
    assert found["Type"] == "notify"
    assert int(found["WatchdogSec"]) >= 30
    words = found["ExecStart"].split()
    if "worker" in words:
        assert float(found["TimeoutStopSec"]) >= grace_s(words) + END_S
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # what it would say of the names of settings is known on machines with systemd alone
    # The program and the user of another machine are not on this one.
    text = path.read_text().replace(words[0], "/bin/true").replace("User=shop", "User=root")
    copy = tmp_path / path.name
    copy.write_text(text)
    ran = subprocess.run([analyze, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_guide_names_every_file() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert [named(path) for path in (*MANIFESTS, *COMPOSE, *UNITS) if named(path) not in page] == []
