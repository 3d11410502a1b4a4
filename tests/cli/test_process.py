"""The command line as a program of its own: exit codes, clean stdout, start time, and a real worker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

HERE = Path(__file__).parent
APP = f"{HERE / 'shop.py'}:app"


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    return {**kept, "LIMPET_URL": f"sqlite:///{tmp_path / 'jobs.db'}?sync=normal"}


def run(where: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "limpet.cli", *args]
    return subprocess.run(command, env=where, capture_output=True, text=True, timeout=60, check=False)


def test_stdout_holds_the_answer_alone(where: dict[str, str]) -> None:
    ran = run(where, "enqueue", "email.send", '{"to":"a"}', "--json")
    assert ran.returncode == 0
    answer = msgspec.json.decode(ran.stdout)
    assert answer["existing"] is False
    assert "signature" in answer["notes"][0]
    assert ran.stderr == ""
    listed = run(where, "jobs")
    assert "\x1b" not in listed.stdout + listed.stderr
    assert len(run(where, "jobs", "--jsonl").stdout.splitlines()) == 1


def test_exit_codes(where: dict[str, str]) -> None:
    assert run(where, "jobs").returncode == 5
    assert run(where, "migrate").returncode == 0
    assert run(where, "nonsense").returncode == 2
    assert run(where, "job", "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b").returncode == 3
    assert run(where, "claim", "--agent", "a1").returncode == 8


def test_a_reader_that_leaves_early_is_no_error(where: dict[str, str]) -> None:
    run(where, "enqueue", "a")
    line = f"{sys.executable} -m limpet.cli jobs --jsonl | true"
    command = ["bash", "-o", "pipefail", "-c", line]
    ran = subprocess.run(command, env=where, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_version_costs_no_library() -> None:
    script = (
        "import sys, json\nfrom limpet.cli import main\nmain(['--version'])\n"
        "print(json.dumps([m for m in ('rich', 'asyncio', 'pysqlite3', 'click') if m in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    version, loaded = ran.stdout.splitlines()
    assert version.startswith("limpet ")
    assert {"rich", "pysqlite3"}.isdisjoint(msgspec.json.decode(loaded))


def test_the_shell_completes_commands_and_names(where: dict[str, str]) -> None:
    run(where, "enqueue", "email.send", "--queue", "email")

    def complete(words: str) -> set[str]:
        asked = {
            **where,
            "_LIMPET_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        return {line.partition(",")[2] for line in run(asked).stdout.splitlines()}

    assert complete("limpet dr") == {"drain"}
    assert complete("limpet pause em") == {"email"}
    assert complete("limpet enqueue em") == {"email.send"}
    assert complete("limpet jobs que") == {"queue:email"}
    assert complete("limpet jobs state:s") == {"state:scheduled", "state:succeeded"}
    assert complete("limpet cancel !task:e") == {"!task:email.send"}


def test_a_person_at_a_terminal_is_asked(where: dict[str, str]) -> None:
    for _ in range(4):
        run(where, "enqueue", "a")

    def answer(word: str) -> tuple[int, str]:
        ours, theirs = os.openpty()
        command = [sys.executable, "-m", "limpet.cli", "cancel", "task:a"]
        with subprocess.Popen(
            command, env={**where, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
        ) as asked:
            os.close(theirs)
            os.write(ours, word.encode())
            said = b""
            # The kernel answers EIO when the other side has closed the terminal.
            with contextlib.suppress(OSError):
                while chunk := os.read(ours, 4096):
                    said += chunk
            os.close(ours)
            return asked.wait(60), said.decode()

    code, said = answer("n\n")
    assert code == 1
    assert "cancel 4 jobs?" in said
    assert "and 1 more" in said
    assert "nothing was changed" in said
    code, said = answer("y\n")
    assert code == 0
    assert "4 cancelled" in said


# -- the worker

NEEDY = """from limpet import Limpet

app = Limpet()

@app.resource
async def pool():
    yield {}["DATABASE"]

@app.task
def nothing() -> None: ...
"""


def test_a_store_in_memory_is_refused(where: dict[str, str]) -> None:
    ran = run(where, "worker", APP, "--url", "sqlite://")
    assert ran.returncode == 2
    assert "memory" in ran.stderr
    assert ran.stdout == ""


def test_an_app_that_cannot_be_loaded_is_told_once(where: dict[str, str], tmp_path: Path) -> None:
    assert run(where, "worker").returncode == 2
    assert "no_such_module" in run(where, "worker", "no_such_module:app").stderr
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('at import')\n")
    ran = run(where, "worker", f"{broken}:app")
    assert ran.returncode == 1
    frame = f"  File \"{broken}\", line 1, in <module>\n    raise RuntimeError('at import')\n"
    assert ran.stderr.startswith(f"limpet: importing '{broken}' failed\n{frame}RuntimeError: at import\n")
    assert ran.stderr.count("File ") == 1
    empty = tmp_path / "empty.py"
    empty.write_text("from limpet.app import Limpet\napp = Limpet()\n")
    assert "no tasks" in run(where, "worker", f"{empty}:app").stderr


def test_strict_refuses_when_the_engine_warns(where: dict[str, str]) -> None:
    # Its URL asks for sync=normal, which a power cut may hurt.
    ran = run(where, "worker", APP, "--strict")
    assert ran.returncode == 1
    assert "power cut" in ran.stderr
    assert "--strict refuses" in ran.stderr


@contextlib.contextmanager
def started(where: dict[str, str], args: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that is gone afterwards, and its pipes closed."""
    with subprocess.Popen(args, env=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_resource_that_cannot_be_opened_is_shown_with_its_place(where: dict[str, str], tmp_path: Path) -> None:
    needy = tmp_path / "needy.py"
    needy.write_text(NEEDY)
    args = [sys.executable, "-m", "limpet.cli", "worker", f"{needy}:app", "--log", "json"]
    with started(where, args) as worker:
        assert worker.stderr is not None
        lines = map(msgspec.json.decode, worker.stderr)
        line = next(line for line in lines if line["event"] == "worker failed")
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert line["error"] == "KeyError: 'DATABASE'"
    assert line["traceback"].startswith(f'Traceback (most recent call last):\n  File "{needy}", line 7, in pool\n')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_a_script_starts_in_the_background_stops_when_it_is_told(
    where: dict[str, str], number: int
) -> None:
    """A shell starts it with SIGINT ignored. It is a server: whoever signals it means it."""
    worker = f"{sys.executable} -m limpet.cli worker {APP} --json"
    with started(where, ["bash", "-c", f"trap '' INT; exec {worker}"]) as process:
        assert process.stdout is not None
        assert msgspec.json.decode(process.stdout.readline())["tasks"]
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_worker_runs_jobs_and_stops_on_sigterm(where: dict[str, str]) -> None:
    args = [sys.executable, "-m", "limpet.cli", "worker", APP, "--grace", "5s", "--json", "--queues", "email,pdf,fax"]
    args += ["--concurrency", "20", "--threads", "2", "--job-processes", "3", "--claim-ahead", "0"]
    with started(where, args) as worker:
        assert worker.stdout is not None
        banner = msgspec.json.decode(worker.stdout.readline())
        assert (banner["tasks"], banner["concurrency"]) == (["email.send", "pdf.make"], 20)
        assert (banner["threads"], banner["job_processes"]) == (2, 3)
        assert banner["reserve"] == {"jobs": 2, "threads": 0}  # emails are urgent, and need no thread
        ran = run(where, "enqueue", "email.send", '{"to":"a"}', "--wait", "30", "--json")
        assert msgspec.json.decode(ran.stdout)["result"] == "sent 1 to a"
        dead = run(where, "enqueue", "pdf.make", '{"pages":3}', "--app", APP, "--wait", "30")
        assert dead.returncode == 1
        assert "no paper for 3" in dead.stderr
        (line,) = msgspec.json.decode(run(where, "workers", "--json").stdout)["workers"]
        assert set(line["queues"]) == {"email", "pdf", "fax"}
        places = line["info"]["places"]
        assert [(name, places[name]["places"], places[name]["reserve"]) for name in places] == [
            ("job", 20, 2),
            ("thread", 2, 0),
        ]
        # The declarations are in the store now: by-name enqueue without the code uses them.
        bare = run(where, "enqueue", "email.send", '{"to":"b"}', "--wait", "30", "--json")
        shape = run(where, "job", msgspec.json.decode(bare.stdout)["id"], "--json")
        assert msgspec.json.decode(shape.stdout)["queue"] == "email"
        assert run(where, "doctor", "--quiet").returncode == 10
        worker.send_signal(signal.SIGTERM)
        _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert "fax" in err
    assert msgspec.json.decode(run(where, "workers", "--json").stdout)["workers"] == []
