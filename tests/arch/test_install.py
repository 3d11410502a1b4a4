"""A checkout installs the same everywhere: pins for all it needs, and no machine's addresses in the files."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

from limpet.core.version import VERSION
from tests.arch.tree import ROOT, modules, named, written_files

# Written with a class in each name, so that this file does not name them either.
REGISTRIES = re.compile(r"(?i)pypi[.](org|io)|python[h]osted|npm[j]s|npm[m]irror|(extra-)?index-[u]rl|find-[l]inks")
PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==[\w.+!]+")


def pins() -> dict[str, str]:
    """The lines of constraints.txt by name."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found = {line: PIN.fullmatch(line) for line in lines}
    assert [line for line, match in found.items() if match is None] == []
    return {match.group(1): line for line, match in found.items() if match is not None}


def test_everything_pyproject_asks_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in wanted}
    own = {project["project"]["name"]}  # the extra `all` names the others
    assert sorted(names - pins().keys()) == sorted(own)


def test_no_file_names_a_package_registry() -> None:
    bad = []
    for path in written_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        bad += [f"{named(path)}: {match.group()}" for match in REGISTRIES.finditer(text)]
    assert bad == []


# What `pip install` is followed by: words of options, then what is installed.
INSTALL = re.compile(r"pip install ((?:-\S+ )*)('[^']+'|[^\s`'\",;)]+)")


def installs(text: str) -> list[str]:
    """The lines in a text that install Limpet itself, without the words before them."""
    found = (match.group(1) + match.group(2) for match in INSTALL.finditer(text))
    return [line for line in found if re.search(r"limpet|(^|[ '])\.", line)]


def forms(pattern: str) -> set[str]:
    """What a line may be: without an extra, or with one that is declared."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plain = pattern.replace("'", "").format("")
    return {plain, *(pattern.format(f"[{extra}]") for extra in project["optional-dependencies"])}


def test_pages_install_a_release_and_the_section_on_checkouts_installs_a_checkout() -> None:
    release, checkout = forms("'limpet{}'"), forms("-e '.{}'")
    readme = (ROOT / "README.md").read_text()
    section = re.search(r"^## From a checkout\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert set(installs(section.group(1))) == {"-e .", "-e '.[redis]'"}
    pages = {named(path): path.read_text() for path in written_files(ROOT / "docs") if path.suffix == ".md"}
    pages["README.md"] = readme.replace(section.group(0), "")
    assert {name: bad for name, text in pages.items() if (bad := set(installs(text)) - release)} == {}
    assert "limpet" in installs(pages["README.md"])
    assert set(installs((ROOT / "CONTRIBUTING.md").read_text())) <= checkout


def test_one_module_says_how_an_extra_is_installed() -> None:
    saying = {named(path): found for path in modules() if (found := installs(path.read_text()))}
    assert saying == {"src/limpet/stores/extras.py": ["-e '.[{extra}]'", "'limpet[{extra}]'"]}


def test_a_wrong_line_would_be_seen() -> None:
    assert installs("`pip install .`, then pip install '.[fast]' or pip install limpet[redis]") == [
        ".",
        "'.[fast]'",
        "limpet[redis]",
    ]
    assert installs("pip install --upgrade 'limpet[redis]' and `pip install pysqlite3`") == [
        "--upgrade 'limpet[redis]'",
    ]


def test_the_release_has_one_number() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION


def test_make_says_what_each_target_does() -> None:
    answer = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = set(re.findall(r"^  (\w+) +\w", answer.stdout, re.MULTILINE))
    assert {"help", "demo", "quick", "test", "matrix", "check", "bench", "web"} <= listed


def test_ci_runs_what_people_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test")
