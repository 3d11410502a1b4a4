"""Does what a newcomer does on the first day, in a bare environment, and prints each step with what is seen.

    python tools/first_day.py [--bin FOLDER] [--url URL]

The files are those of README.md and docs/tutorial/first-queue.md. Without `--bin`, the folder with the programs of an
environment that has the wheel, it builds the wheel of this checkout and has pip install it into a new environment.
Without `--url`, an empty store on a server, the jobs are in a file. Anything that is not as the pages say ends it with
an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
README: Final = ROOT / "README.md"
TUTORIAL: Final = ROOT / "docs" / "tutorial" / "first-queue.md"
PATIENCE_S: Final = 120.0  # far more than any step takes; a busy machine is no failure
EXTRAS: Final = {"redis": "redis", "valkey": "redis", "postgresql": "postgres"}  # by the scheme of a URL


class Differs(Exception):
    """What was seen is not what the pages say."""


def file_of(page: Path, name: str) -> str:
    """The file that a page tells its readers to save."""
    found = re.search(rf"^```python file={re.escape(name)}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise Differs(f"{page.name} has no file {name}")
    return found[1]


class Worker:
    """A worker in the other terminal, and what it has written there."""

    def __init__(self, command: Sequence[str], folder: Path, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._said: list[str] = []
        self._news = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.wait_for("worker started")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._said.append(line)
                self._news.notify_all()

    def wait_for(self, pattern: str) -> str:
        """The first line like this, as soon as it is there."""
        with self._news:
            found = self._news.wait_for(lambda: self._line(pattern), PATIENCE_S)
            if not found:
                raise Differs(f"the worker does not say {pattern!r}:\n{''.join(self._said)}")
            return found

    def _line(self, pattern: str) -> str:
        return next((line.rstrip() for line in self._said if re.search(pattern, line)), "")

    def kill(self) -> None:
        """As a crash does."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)  # its children end when it has

    def stop(self) -> None:
        """As Ctrl-C or a deployment does."""
        self._process.terminate()
        code = self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        if code != 0:
            raise Differs(f"a worker that was told to stop ended with {code}:\n{''.join(self._said)}")

    def end(self) -> None:
        """Leave nothing behind, whatever went wrong."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)


class Day:
    """A folder, the programs of one environment, and the steps that were taken."""

    def __init__(self, folder: Path, bin: Path, url: str | None) -> None:
        self.folder, self.bin = folder, bin
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "PYTHON"))}
        self.env = {**ours, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "160"}
        self.where = r"^url +sqlite:////.+/limpet\.db +from default$"
        if url is not None:
            self.env["LIMPET_URL"] = url
            self.where = rf"^url +\S*{re.escape(url.rpartition('@')[2])}\S* +from LIMPET_URL$"
        self.workers: list[Worker] = []
        self._steps = 0

    def step(self, title: str) -> None:
        self._steps += 1
        print(f"\n{self._steps}. {title}", flush=True)

    def run(self, *words: str, code: int = 0, shows: str = "") -> str:
        """Run a program; what it prints, which must hold `shows`."""
        answer = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        print(f"   $ {shlex.join(words)}\n" + "".join(f"     {line}\n" for line in answer.stdout.splitlines()), end="")
        if answer.returncode != code or not re.search(shows, answer.stdout, re.MULTILINE):
            raise Differs(
                f"{shlex.join(words)} should end with {code} and show {shows!r}, and ended with {answer.returncode}"
            )
        return answer.stdout.strip()

    def ask(self, *words: str) -> Any:
        """What a command answers to programs."""
        command = [str(self.bin / "limpet"), *words, "--json"]
        ran = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, timeout=PATIENCE_S, check=True
        )
        return json.loads(ran.stdout)

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        print(f"   saved {name}")

    def start(self, *words: str) -> Worker:
        """A worker in the background, once it has started."""
        print(f"   $ {shlex.join(words)} &")
        self.workers.append(Worker([str(self.bin / words[0]), *words[1:]], self.folder, self.env))
        return self.workers[-1]


def hello(day: Day) -> None:
    """The README: five lines, a worker, a job from Python and one from a shell."""
    day.step("Five lines, a worker, two jobs")
    day.save("hello.py", file_of(README, "hello.py"))
    worker = day.start("limpet", "worker", "hello:app")
    enqueue = "from hello import app, greet; print(app.run(greet.enqueue_sync('Ada').result(timeout=30)))"
    day.run("python", "-c", enqueue, shows="^Hello, Ada!$")
    job = ("limpet", "enqueue", "hello.greet", '{"name": "Bob"}', "--app", "hello:app")
    day.run(*job, "--wait", "30", shows='"Hello, Bob!"')
    day.run("limpet", "jobs", shows=r"succeeded +hello\.greet")
    day.run("limpet", "config", shows=day.where)
    day.step("The worker is killed; a job comes; another worker runs it")
    worker.kill()
    id = day.run(*job).splitlines()[-1]
    day.run("limpet", "jobs", "state:ready", shows=id)
    again = day.start("limpet", "worker", "hello:app")
    again.wait_for(rf"job succeeded.*{id}")
    again.stop()


def dead_letters(day: Day) -> None:
    """The tutorial: a retry, the app's own lines, a dead letter and back."""
    day.step("An error: retries, the app's own lines in the log, a dead letter")
    day.save("shop.py", file_of(TUTORIAL, "shop.py"))
    worker = day.start("limpet", "worker", "shop:app")
    (day.folder / "provider-is-down").touch()
    id = day.run("limpet", "enqueue", "shop.charge", '{"order": 42}', "--app", "shop:app").splitlines()[-1]
    for attempt in (1, 2, 3):
        print("     " + worker.wait_for(rf"INFO .* shop: charging order 42 job_id={id} .*attempt={attempt}"))
    print("     " + worker.wait_for(rf"ERROR .*job dead job_id={id}"))
    print("     " + worker.wait_for(r"^  Traceback"))
    day.run("limpet", "dead", shows=rf"{id}.*ConnectionError: the payment provider is down")
    day.run("limpet", "dead", "causes", shows="^1 +.*ConnectionError")
    day.run("limpet", "jobs", "provider", "finished<1h", "args.order>=42", shows=id)
    day.run("limpet", "job", id, shows=r"raise ConnectionError")
    day.step("The provider is back: the dead job runs again")
    (day.folder / "provider-is-down").unlink()
    day.run(
        "limpet", "dead", "retry", "task:shop.charge", "--yes", "--reason", "the provider is back", shows="1 retried"
    )
    worker.wait_for(rf"job succeeded.*{id}")
    day.run("limpet", "dead", shows="no dead jobs")


def questions(day: Day) -> None:
    """What a newcomer gets wrong, and asks."""
    day.step("Mistakes are answered")
    trap = "from shop import welcome; welcome.delay('Ada')"
    day.run("python", "-c", trap, code=1, shows=r"a task has no \.delay \(await it: \.enqueue\(")
    day.run("limpet", "enqueue", "shop.wellcome", "--app", "shop:app", code=1, shows="did you mean 'shop.welcome'")
    day.run("limpet", "worker", "shopp:app", code=2, shows="did you mean 'shop'")
    day.save("broken.py", "import shop\n\nRATE = {'eur': 1}['usd']\n")
    said = day.run("limpet", "worker", "broken:app", code=1, shows=r'broken\.py", line 3')
    if "/limpet/" in said or "importlib" in said:
        raise Differs("an import that fails shows frames that are not of the app")
    day.step("Why does it not run?")
    day.run("limpet", "pause", "mail", "--reason", "the templates are being changed", shows="paused")
    id = day.run("limpet", "enqueue", "shop.welcome", '{"name": "Dan"}', "--app", "shop:app").splitlines()[-1]
    day.run("limpet", "explain", id, shows="because: the templates are being changed")
    day.run("limpet", "resume", "mail")
    day.workers[-1].wait_for(rf"job succeeded.*{id}")


def ending(day: Day) -> None:
    """SIGTERM, and the books."""
    day.step("The worker is told to stop")
    worker = day.workers[-1]
    worker.stop()
    worker.wait_for("worker ended.*ending=stopped")
    day.run("limpet", "stats", shows="5 succeeded")
    counts = day.ask("stats")
    if counts["dead"] or counts["ever"]["enqueued"] != counts["succeeded"]:
        raise Differs(f"the counters do not add up: {counts}")


def bare(home: Path, extra: str) -> Path:
    """The programs of a new environment in which pip has installed the wheel of this checkout."""
    named = f"limpet[{extra}]" if extra else "limpet"
    print(f"0. pip install {named}")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", home, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = home.glob("*.whl")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    bin = home / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "-q"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", f"{named} @ {wheel.as_uri()}"], check=True)
    return bin


def main() -> int:
    """Live through the day; 0 when it was as the pages say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="the programs of an environment that has the wheel")
    parser.add_argument("--url", help="an empty store on a server, instead of a file")
    asked = parser.parse_args()
    extra = EXTRAS.get((asked.url or "").partition(":")[0], "")
    with tempfile.TemporaryDirectory(prefix="limpet-first-day-") as home:
        folder = Path(home) / "work"
        folder.mkdir()
        day = Day(folder, asked.bin.absolute() if asked.bin else bare(Path(home), extra), asked.url)
        try:
            day.run("limpet", "--version", shows=r"^limpet \d")
            for part in (hello, dead_letters, questions, ending):
                part(day)
        except (Differs, subprocess.SubprocessError) as error:
            print(f"\nfirst day: {error}", file=sys.stderr)
            return 1
        finally:
            for worker in day.workers:
                worker.end()
    print("\nfirst day: as the pages say")
    return 0


if __name__ == "__main__":
    sys.exit(main())
