"""The Dockerfile's steps, replayed in an empty folder: what they make runs without root, and can change nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.arch.tree import ROOT
from tests.deploy.files import DOCKERFILE, image_command, only, steps
from tests.servers.process import free_port

pytestmark = [pytest.mark.matrix("pip fetches every package of the image"), pytest.mark.timeout(600)]
WITHIN_S = 60.0


def reachable(path: Path) -> bool:
    """Whether every user may run it."""
    return all(each.stat().st_mode & 0o001 for each in (path.resolve(), *path.resolve().parents))


def interpreter() -> Path:
    """One that the user of the image may run, or our own."""
    for name in (sys.executable, *(f"/usr/bin/python3.{minor}" for minor in (11, 12, 13))):
        if Path(name).exists() and reachable(Path(name)):
            able = subprocess.run([name, "-c", "import ensurepip, venv"], capture_output=True, timeout=60, check=False)
            if able.returncode == 0:
                return Path(name)
    return Path(sys.executable)


PYTHON = interpreter()


class Image:
    """A folder in which the absolute paths of the Dockerfile begin."""

    def __init__(self, root: Path, wheel: Path) -> None:
        self.root = root
        self.env = {"HOME": str(root), "PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "TMPDIR": str(root / "tmp")}
        (root / "tmp").mkdir()
        (root / "usr/local/bin").mkdir(parents=True)
        (root / "usr/local/bin/python").symlink_to(PYTHON)
        (root / "usr/bin").symlink_to("/usr/bin")
        (root / "bin").symlink_to("/bin")
        for step in steps():
            getattr(self, f"_{step.word.lower()}", lambda rest: None)(step.rest)
            if step.word == "COPY" and "requirements.txt" in step.rest:
                self._use(wheel)

    def inside(self, text: str) -> str:
        """The same text with its absolute paths in this folder."""
        begun = ("/opt", "/srv", "/data", "/tmp", "/usr", "/bin")
        return shlex.join(
            ":".join(f"{self.root}{part}" if part.startswith(begun) else part for part in word.split(":"))
            for word in shlex.split(text)
        )

    def _run(self, rest: str) -> None:
        path = self.env.get("PATH", f"{self.root}/usr/local/bin:/usr/bin:/bin")
        words = self.inside(rest)
        if os.geteuid():
            words = words.replace("--owner=10001 --group=10001 ", "")  # only root may give a folder away
        env = {**self.env, "PATH": path}
        ran = subprocess.run(["sh", "-c", words], env=env, cwd=self.root, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{words}\n{ran.stderr}"

    def _copy(self, rest: str) -> None:
        if rest.startswith("--from"):
            return  # both stages are made in one folder
        *sources, target = shlex.split(rest)
        to = Path(self.inside(target))
        (to if target.endswith("/") else to.parent).mkdir(parents=True, exist_ok=True)
        for pattern in sources:
            for source in DOCKERFILE.parent.glob(pattern):
                shutil.copy(source, to)

    def _env(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.env[name] = self.inside(value) if name == "PATH" else value

    def _use(self, wheel: Path) -> None:
        """Ask for this checkout, not for a release."""
        (file,) = (self.root / "tmp").glob("requirements.txt")
        file.write_text(file.read_text().replace("limpet[", "limpet [").replace("]", f"] @ {wheel.as_uri()}"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, capture_output=True, timeout=300, check=True)
    (wheel,) = out.glob("*.whl")
    root = Path(mkdtemp(prefix="limpet-image-"))  # not below a folder that only its owner may enter
    root.chmod(0o755)
    yield Image(root, wheel)
    shutil.rmtree(root, ignore_errors=True)


def started(image: Image, url: str, *words: str) -> subprocess.Popen[str]:
    """`limpet` as the image runs it: as its user, from its folder."""
    uid, gid = (int(part) for part in only("USER").split(":"))
    env = {**image.env, "LIMPET_URL": url, "PYTHONUNBUFFERED": "1"}
    other = os.geteuid() == 0 and reachable(PYTHON)  # else it runs as who runs the tests
    return subprocess.Popen(
        [image.inside("/opt/app/bin/limpet"), *words],
        env=env,
        cwd=image.inside(only("WORKDIR")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        user=uid if other else None,
        group=gid if other else None,
        extra_groups=[] if other else None,
    )


def test_the_image_works_for_its_own_user_and_cannot_be_changed_by_it(image: Image) -> None:
    for folder, names, files in os.walk(image.root):
        if Path(folder).name in ("tmp", "data"):
            continue
        for name in [*names, *files, ""]:
            path = Path(folder) / name
            if not path.is_symlink() and path.name not in ("tmp", "data"):
                path.chmod(path.stat().st_mode & 0o555 | 0o444)
    (image.root / "tmp").chmod(0o1777)
    url, port = f"sqlite:///{image.root}/data/jobs.db", free_port()
    words = [f"127.0.0.1:{port}" if ":" in word else word for word in image_command()]
    worker = started(image, url, *words)
    try:
        deadline_s = time.monotonic() + WITHIN_S
        while not answers(port):
            assert worker.poll() is None, worker.communicate()
            assert time.monotonic() < deadline_s, "it does not get ready"
            time.sleep(0.05)
        asked = started(image, url, "enqueue", "shop.greet", '{"name": "Ada"}', "--wait", "30")
        out, errors = asked.communicate(timeout=WITHIN_S)
        assert (asked.returncode, out.splitlines()[-1]) == (0, '"Hello, Ada!"'), errors
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=WITHIN_S)
        assert worker.returncode == 0, log
    finally:
        worker.kill()
        worker.communicate()
    assert not list((image.root / "srv/app").rglob("__pycache__"))


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
