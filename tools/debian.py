"""Unpacks Debian's packages into a folder: nothing is installed, no service is started and root is not needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(packages: Sequence[str], target: Path, release: str | None = None) -> bool:
    """Download packages and unpack them into `target`; those of another release if one is named.

    False where that cannot be done; why is said on stderr.
    """
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            sys.stderr.write(f"this machine has no {program}, so Debian's packages cannot be unpacked\n")
            return False
    with TemporaryDirectory() as name:
        folder = Path(name)
        if not (_fetch(packages, folder) if release is None else _fetch_of(release, packages, folder)):
            return False
        target.mkdir(parents=True, exist_ok=True)
        for package in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, target], check=True)
    return True


def _fetch(packages: Sequence[str], folder: Path) -> bool:
    """By the machine's own lists of packages first: they may be empty or old."""
    if _apt("download", *packages, cwd=folder):
        return True
    private = [*_private_lists(folder), "-o", "Dir::State::status=/var/lib/dpkg/status"]
    return _apt(*private, "update", cwd=folder) and _apt(*private, "download", *packages, cwd=folder)


def _fetch_of(release: str, packages: Sequence[str], folder: Path) -> bool:
    """From wherever this machine gets its own release; nothing counts as installed."""
    sources = folder / "sources.list"
    lines = [f"deb [signed-by={KEYS}] {address} {release} main" for address in _addresses()]
    if not lines:
        sys.stderr.write(f"/etc/apt names no archive of Debian's, so its release {release} cannot be asked\n")
        return False
    sources.write_text("".join(line + "\n" for line in lines))
    private = [*_private_lists(folder), "-o", "Dir::State::status=/dev/null"]
    private += ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
    return _apt(*private, "update", cwd=folder) and _apt(*private, "download", *packages, cwd=folder)


def _addresses() -> list[str]:
    """Where Debian's own packages come from on this machine, in either way of writing it down."""
    lists = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "".join(file.read_text() for file in lists if file.is_file())
    return sorted({found.rstrip("/") for found in re.findall(r"^[^#\n]*?(\w+://\S+/debian/?)\s", text, re.MULTILINE)})


def _private_lists(folder: Path) -> list[str]:
    """Options that keep the lists of packages in a folder of ours."""
    state, cache = folder / "state", folder / "cache"
    (state / "lists" / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    return ["-o", f"Dir::State={state}", "-o", f"Dir::Cache={cache}"]


def _apt(*words: str, cwd: Path) -> bool:
    answer = subprocess.run(["apt-get", "-qq", *words], cwd=cwd, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.stderr.write(answer.stderr)
    return answer.returncode == 0
