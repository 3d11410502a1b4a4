"""Apps by reference: what a module that cannot be imported shows, and which app was most likely meant."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.core.errors import ImportFailed, InvalidOption
from limpet.runtime.loading import load_app, load_module

APP = "from limpet import Limpet\nqueue = Limpet('sqlite://')\n"
FILES = {
    "depot/__init__.py": "",
    "depot/tasks.py": APP,
    "depot/rates.py": "RATE = {'eur': 1}['usd']\n",
    "depot/bills.py": "from depot.rates import RATE\n",
    "depot/wrapped.py": "try: import depot.rates\nexcept KeyError as e: raise ValueError('no rates') from e\n",
    "depot_wrong.py": f"{APP}@queue.task(no_such_option=3)\ndef f(): ...\n",
    "depot_typed.py": "def f(:\n    pass\n",
    "depot_needy.py": "import depot_missing\n",
    "depot_library.py": "import json\nRATES = json.loads('{')\n",
    "site-packages/depot_installed.py": "import json\nRATES = json.loads('{')\n",
    "depot_ends.py": "raise SystemExit(3)\n",
    "depot_many.py": f"{APP}mail = Limpet('sqlite://')\nfrom pathlib import Path\nBASE = Path()\n",
    "depot_none.py": "x = 1\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "site-packages"), *sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("depot")]:
        del sys.modules[name]


def frames(error: ImportFailed) -> list[str]:
    return [
        line.partition(",")[0].rpartition("/")[2].strip('"') for line in error.message.splitlines() if "File" in line
    ]


@pytest.mark.parametrize(
    ("place", "files", "says"),
    [
        ("depot.bills", ["bills.py", "rates.py"], "KeyError: 'usd'"),
        ("depot/rates.py", ["rates.py"], "KeyError: 'usd'"),
        ("depot_typed", ["depot_typed.py"], "SyntaxError: "),
        ("depot_needy", ["depot_needy.py"], "ModuleNotFoundError: No module named 'depot_missing'"),
        ("depot_wrong", ["depot_wrong.py"], "limpet.InvalidOption: @task has no option 'no_such_option'"),
        ("depot.wrapped", ["wrapped.py", "rates.py", "wrapped.py"], "ValueError: no rates"),
        ("depot_library", ["depot_library.py"], "JSONDecodeError: "),
    ],
)
def test_an_import_that_fails_shows_the_frames_of_the_app_alone(place: str, files: list[str], says: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        load_app(f"{place}:app")
    assert caught.value.message.startswith(f"importing '{place}' failed\n")
    assert says in caught.value.message.splitlines()[-1]
    found = frames(caught.value)
    assert sorted(found) == sorted(files)
    assert caught.value.fix


def test_of_an_installed_app_the_frames_are_shown_too() -> None:
    with pytest.raises(ImportFailed) as caught:
        load_app("depot_installed:app")
    assert frames(caught.value)[0] == "depot_installed.py"


def test_half_a_module_is_not_kept() -> None:
    for place in ("depot/rates.py", "depot.rates"):
        for _ in range(2):
            with pytest.raises(ImportFailed, match="KeyError"):
                load_module(place)
    assert {"rates", "depot.rates"}.isdisjoint(sys.modules)


def test_a_module_that_ends_the_program_is_refused() -> None:
    with pytest.raises(InvalidOption, match="exit 3"):
        load_app("depot_ends")


@pytest.mark.parametrize(
    ("ref", "says"),
    [
        ("depot.taks", "did you mean 'depot.tasks'?"),
        ("depto.tasks", "did you mean 'depot'?"),
        ("depot.tasks.queue", "did you mean depot.tasks:queue?"),
        ("depot.tasks", "did you mean depot.tasks:queue?"),
        ("depot.tasks:queu", "did you mean depot.tasks:queue?"),
        ("depot_many:mial", "did you mean depot_many:mail?"),
        ("depot_many:zzz", "its apps are mail, queue"),
        ("depot_many:BASE", "is of type PosixPath, not an app"),
        ("depot_many:Limpet", "is of type type, not an app"),
        ("depot_none", "write app = Limpet()"),
        ("elsewhere.tasks", "run from the folder that holds 'elsewhere' (this is "),
        ("depot/tasks", "shop/tasks.py:app"),
        (":app", "not the name of a module"),
        ("nowhere.py:app", "is not a Python file"),
    ],
)
def test_a_reference_that_leads_nowhere_says_what_was_meant(ref: str, says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        load_app(ref)
    assert says in str(caught.value)


def test_a_folder_above_that_holds_the_module_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "depot")
    with pytest.raises(ImportFailed) as caught:
        load_app("bills")
    assert caught.value.fix == f"run it from {folder}, which holds 'depot'"


def test_an_app_is_found_by_its_name_and_by_its_file() -> None:
    assert load_app("depot.tasks:queue").parts().tasks == load_app("depot/tasks.py:queue").parts().tasks == {}
