"""Puts a Chromium beside the other test programs: `make tests` calls it, and it does nothing where there is one.

Debian's headless build with every library that it names, unpacked into `.venv/chromium`; a starter shows it those and
two faces, so that pictures of pages look the same on each machine. LIMPET_TEST_CHROMIUM names another program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers.chromium import CHROMIUM, MissingBrowser, program
from tools.debian import unpack

PACKAGE = "chromium-headless-shell"
FACES = ("fonts-inter", "fonts-dejavu-core", "fontconfig-config")
OF_THE_MACHINE = ("libc6", "libgcc-s1", "libstdc++6", "gcc-12-base", "gcc-14-base", "debconf", "dpkg", "adduser", "ucf")

FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts/opentype/inter</dir>
  <dir prefix="relative">usr/share/fonts/truetype/dejavu</dir>
  <cachedir>/tmp/limpet-fonts</cachedir>
  <alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="same"><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""
STARTER = """\
#!/bin/sh
root="$(cd "${0%/*}" && pwd)"
export LD_LIBRARY_PATH="$root/usr/lib/TRIPLET:$root/lib/TRIPLET:$root/usr/lib/TRIPLET/pulseaudio:$root/usr/lib/chromium"
export FONTCONFIG_FILE="$root/fonts.conf"
exec "$root"/usr/lib/chromium/chromium-headless-shell "$@"
"""


def main() -> int:
    try:
        program()
        return 0
    except MissingBrowser:
        sys.stdout.write("chromium: unpacking Debian's packages into .venv/chromium\n")
    partial = CHROMIUM.with_name("chromium.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if unpack((*beneath(PACKAGE), *FACES), partial):
        make_starter(partial)
        partial.rename(CHROMIUM)
    program()  # says what to do when there still is none
    return 0


def beneath(package: str) -> list[str]:
    """The package and all that it needs, but for what every machine has."""
    asked = ["apt-cache", "depends", "--recurse", "--no-suggests", "--no-recommends", "--no-conflicts", "--no-breaks"]
    asked += ["--no-replaces", "--no-enhances", "--no-pre-depends", package]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = set(re.findall(r"^([a-z0-9][a-z0-9.+-]*)$", told, re.MULTILINE))
    return sorted((found | {package}) - set(OF_THE_MACHINE))


def make_starter(root: Path) -> None:
    """Write the program that the tests start, and leave out drivers of graphics cards, which would be 180 MB."""
    (library,) = {path.name for path in root.glob("usr/lib/*-linux-*")}
    for name in ("dri", "libLLVM*", "libz3*"):
        for path in root.glob(f"usr/lib/{library}/{name}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "fonts.conf").write_text(FONTS)
    starter = root / "chromium"
    starter.write_text(STARTER.replace("TRIPLET", library))
    starter.chmod(0o755)


if __name__ == "__main__":
    os.umask(0o022)
    try:
        sys.exit(main())
    except MissingBrowser as error:
        sys.exit(f"chromium: {error}")
