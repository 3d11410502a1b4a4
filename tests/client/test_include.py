"""An app that names the modules of its tasks imports them when they are needed, once, and not before."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import ImportFailed, InvalidArguments, InvalidOption, Limpet
from limpet.runtime.loading import find_ref

FILES = {
    "stall/__init__.py": "",
    "stall/app.py": "from limpet import Limpet\napp = Limpet(include=['stall.tasks', 'stall.tasks', 'stall.times'])\n",
    "stall/tasks.py": """
        from dataclasses import dataclass
        from stall.app import app

        print("importing stall.tasks")

        @dataclass
        class Parcel:
            to: str

        @app.task(name="pack")
        def pack(to: str) -> Parcel:
            return Parcel(to)

        @app.task(name="apart", executor="process")
        def apart(n: int) -> int:
            return n + 1
        """,
    "stall/times.py": """
        from limpet import Every
        from stall.app import app

        KNOWN = sorted(app.tasks)  # asked while the modules are being imported

        @app.schedule(Every("1h"))
        @app.task(name="tidy")
        def tidy() -> None: ...
        """,
    "stall/broken.py": """
        from stall.app import app

        @app.task(name="early")
        def early() -> None: ...

        def rate() -> int:
            return {}["usd"]

        rate()
        """,
}


@pytest.fixture
def stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose app is in one module, and its tasks in others."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(line.removeprefix("        ") for line in text.splitlines()))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LIMPET_URL", f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "stall"]:
        del sys.modules[name]


def the_app() -> Limpet:
    app: Limpet = importlib.import_module("stall.app").app
    return app


def test_nothing_is_imported_before_it_is_needed_and_then_once(stall: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = the_app()
    assert "stall.tasks" not in sys.modules
    assert repr(app) == "<Limpet 0 tasks>"
    assert sorted(app.tasks) == ["apart", "pack", "tidy"]
    assert sorted(app.parts().tasks) == ["apart", "pack", "tidy"]
    assert [schedule.name for schedule in app.parts().schedules] == ["tidy"]
    assert capsys.readouterr().out == "importing stall.tasks\n"


def test_a_module_that_is_being_imported_sees_what_is_declared_so_far(stall: Path) -> None:
    assert len(the_app().tasks) == 3
    assert sys.modules["stall.times"].KNOWN == ["apart", "pack"]


async def test_a_job_that_is_asked_for_by_name_fits_the_task_of_an_included_module(stall: Path) -> None:
    async with the_app() as app:
        with pytest.raises(InvalidArguments):
            await app.enqueue("pack", {"too": "ada"})
        assert (await app.enqueue("pack", {"to": "ada"})).task == "pack"


async def test_a_worker_runs_the_tasks_of_included_modules_in_threads_and_processes(stall: Path) -> None:
    async with the_app() as app:
        jobs = [await app.enqueue("pack", {"to": "ada"}), await app.enqueue("apart", {"n": 1})]
        assert (await app.work(until_empty=True, job_processes=1)).succeeded == 2
        assert await jobs[1].result(timeout=60) == 2
        assert [schedule.name for schedule in await app.schedules.list()] == ["tidy"]


async def test_a_result_is_rebuilt_by_an_app_that_has_imported_nothing_yet(stall: Path) -> None:
    async with the_app() as app:
        job = await app.enqueue("pack", {"to": "ada"})
        await app.work(until_empty=True)
    for name in [name for name in sys.modules if name.startswith("stall")]:
        del sys.modules[name]
    async with the_app() as other:
        parcel = await other.get(job.id).result(timeout=60)
        assert (type(parcel).__name__, parcel.to) == ("Parcel", "ada")


@pytest.mark.parametrize(
    "needs",
    [
        lambda app: app.tasks,
        lambda app: app.parts(),
        lambda app: app.schedules,
        lambda app: app.run(app.publish()),
        lambda app: app.run(app.enqueue("pack", {"to": "ada"})),
    ],
)
def test_what_needs_the_tasks_imports_them(stall: Path, needs: Callable[[Limpet], Any]) -> None:
    app = the_app()
    needs(app)
    assert "stall.times" in sys.modules
    app.run(app.close())


def test_a_module_that_fails_is_named_with_the_frames_of_the_app_and_fails_again(stall: Path) -> None:
    (stall / "stall" / "app.py").write_text(
        "from limpet import Limpet\napp = Limpet('sqlite://', include=['stall.broken'])\n"
    )
    app = the_app()
    for _ in range(2):
        with pytest.raises(ImportFailed) as caught:
            _ = app.tasks
        lines = caught.value.message.splitlines()
        assert lines[0] == "include: importing 'stall.broken' failed"
        assert [line.strip().rpartition(", ")[2] for line in lines if "File" in line] == ["in <module>", "in rate"]
        assert lines[-1] == "KeyError: 'usd'"
        assert isinstance(caught.value.__cause__, KeyError)


def test_a_module_that_asks_for_tasks_is_not_blamed_for_another_module(stall: Path) -> None:
    (stall / "stall" / "app.py").write_text(
        "from limpet import Limpet\napp = Limpet('sqlite://', include=['stall.times', 'stall.broken'])\n"
    )
    with pytest.raises(ImportFailed, match=r"^include: importing 'stall.broken' failed"):
        _ = the_app().tasks


def test_a_module_that_is_not_there_is_named_with_what_was_meant(stall: Path) -> None:
    app = Limpet("sqlite://", include=["stall.tsaks"])
    with pytest.raises(InvalidOption, match=r"include: no module named 'stall.tsaks'.*'stall.tasks'"):
        _ = app.tasks


@pytest.mark.parametrize("include", ["stall.tasks", 5, [5], ["stall tasks"], [""], ["stall/tasks.py"], [".tasks"]])
def test_what_names_no_modules_is_refused_when_the_app_is_made(include: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^include .*include=\[\"shop.tasks\"\]"):
        Limpet("sqlite://", include=include)


def test_threads_that_ask_at_once_all_see_every_task(stall: Path) -> None:
    app, seen, together = the_app(), list[int](), threading.Barrier(4)

    def ask() -> None:
        together.wait()
        seen.append(len(app.tasks))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [3, 3, 3, 3]


def test_an_app_in_the_script_that_runs_is_told_from_its_twin(stall: Path) -> None:
    """`python -m stall.app` makes the app as __main__; the tasks import stall.app, which makes it again."""
    script = stall / "stall" / "app.py"
    script.write_text(script.read_text() + "\nif __name__ == '__main__':\n    app.tasks\n")
    command = [sys.executable, "-m", "stall.app"]
    ran = subprocess.run(command, cwd=stall, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "include: 'stall.tasks' declares its tasks for another app: 'app' of the script" in ran.stderr


def test_another_process_finds_the_app_by_an_included_module(stall: Path) -> None:
    assert find_ref(the_app()) in ("stall.tasks:app", "stall.times:app")
