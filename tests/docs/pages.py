"""Runs the code blocks of a page in order, in one folder, as a reader would who follows it from top to bottom.

What a block means is said by the words after its fence:

- `python` is run as a script, `sh` as a shell script; both must end with exit code 0.
- `python file=NAME` (or `toml file=NAME` and the like) is saved under that name instead.
- `sh background` is started and left running until the page ends: the reader's other terminal. It must say
  "worker started" (or "relay started", or " serve ") on the way and end with exit code 0 when it is told to stop.
- `text output` is what the block before it prints, stdout and stderr together; "..." stands for anything.
- Every other language is for the eye.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r"^```(\S+)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
STARTED = "worker started"
STARTS = (STARTED, "relay started", " serve ")
PATIENCE_S = 120


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words beside it, its text, and where it stands."""

    language: str
    words: tuple[str, ...]
    text: str
    place: str

    @property
    def file(self) -> str | None:
        """The name it is saved under, if it is."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text()
    return [
        Block(match[1], tuple(match[2].split()), match[3], f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}")
        for match in FENCE.finditer(text)
    ]


def says(expected: str, said: str) -> bool:
    """True when `said` is `expected`, where "..." may stand for anything and columns may be of any width."""
    promised, found = (
        "\n".join(" ".join(line.split()) for line in text.strip().splitlines()) for text in (expected, said)
    )
    pattern = r"[\s\S]*?".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", promised))
    return re.fullmatch(pattern, found) is not None


class Reader:
    """Follows one page. `bin` is the folder whose `python` and `limpet` the reader has on the path.

    `servers` says what stands for the addresses that pages call the reader's own.
    """

    def __init__(self, folder: Path, bin: Path, servers: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._servers = servers or {}
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "PYTHON"))}
        # Unbuffered, as on a terminal: otherwise what goes to stdout would come after all that went to stderr.
        self._env = {**ours, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self._said = ""
        self._background: list[tuple[Block, subprocess.Popen[str], threading.Thread]] = []

    def read(self, page: Path) -> int:
        """Do what the page says; how many blocks were run."""
        ran = 0
        try:
            for number, block in enumerate(blocks_of(page)):
                ran += self._do(self._own(block), number)
        finally:
            codes = self._end_background()
        assert set(codes.values()) <= {0}, codes
        return ran

    def _own(self, block: Block) -> Block:
        text = block.text
        for address, server in self._servers.items():
            text = text.replace(address, server)
        return replace(block, text=text)

    def _do(self, block: Block, number: int) -> int:
        if block.file is not None:
            (self.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.file).write_text(block.text)
        elif block.language == "python":
            script = self.folder / f"block_{number}.py"
            script.write_text(block.text)
            self._run(block, ["python", script.name])
        elif block.language == "sh" and "background" in block.words:
            self._start(block)
        elif block.language == "sh":
            self._run(block, ["bash", "-euo", "pipefail", "-c", block.text])
        elif "output" in block.words:
            assert says(block.text, self._said), f"{block.place} promises\n{block.text}\nbut it was\n{self._said}"
        else:
            return 0
        return 1

    def _run(self, block: Block, command: list[str]) -> None:
        answer = subprocess.run(
            command,
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self._said = answer.stdout
        assert answer.returncode == 0, f"{block.place} ended with {answer.returncode}:\n{answer.stdout}"

    def _start(self, block: Block) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {block.text}"],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said: list[str] = []
        started = threading.Event()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if any(words in line for words in STARTS):
                    started.set()
            started.set()  # it has ended

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        self._background.append((block, process, listener))
        assert started.wait(PATIENCE_S), f"{block.place} does not start:\n{''.join(said)}"
        assert any(words in "".join(said) for words in STARTS), f"{block.place} ended:\n{''.join(said)}"

    def _end_background(self) -> dict[str, int]:
        """Stop what still runs; exit codes by place."""
        for _, process, _ in self._background:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        codes = {}
        for block, process, listener in self._background:
            codes[block.place] = process.wait(PATIENCE_S)
            listener.join(PATIENCE_S)
            assert process.stdout is not None
            process.stdout.close()
        return codes
