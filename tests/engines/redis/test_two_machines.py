"""Two workers in folders of their own share one queue, following only the text of the Redis page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import STARTED, Block, blocks_of
from tests.servers.redis import RedisServer

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "redis.md"
ADDRESS = "redis://queue.example:6379"  # what the page calls the reader's own server
PATIENCE_S = 60


def environment() -> dict[str, str]:
    """A reader's: the programs of this checkout on the path, and no setting of ours."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "PYTHON"))}
    return {**ours, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Machine:
    """A folder with the page's files, and what runs there."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self._server = server
        folder.mkdir()
        for block in blocks_of(PAGE):
            if block.file is not None:
                (folder / block.file).write_text(self._own(block))

    def _own(self, block: Block) -> str:
        return block.text.replace(ADDRESS, self._server.url)

    @contextmanager
    def worker(self) -> Iterator[None]:
        """A worker, from "worker started" until the block ends; it must end well."""
        (block,) = (block for block in blocks_of(PAGE) if block.language == "bash")
        said: list[str] = []
        started = threading.Event()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if STARTED in line:
                    started.set()

        with subprocess.Popen(
            ["bash", "-c", f"exec {block.text}"],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            try:
                assert started.wait(PATIENCE_S), "".join(said)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                code = process.wait(PATIENCE_S)
                listener.join(PATIENCE_S)
        assert code == 0, "".join(said)

    def ask(self) -> str:
        """Run the page's script; what it prints."""
        (block,) = (block for block in blocks_of(PAGE) if block.language == "py")
        answer = subprocess.run(
            ["python", "-c", self._own(block)],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def sent(self) -> list[str]:
        return (self.folder / "sent.log").read_text().splitlines()


def test_two_machines_share_a_queue_by_the_text_alone(server: RedisServer, tmp_path: Path) -> None:
    one, two, third = (Machine(tmp_path / name, server) for name in ("one", "two", "third"))
    with one.worker(), two.worker():
        said = third.ask()
    after = next(at for at, block in enumerate(blocks_of(PAGE)) if block.language == "py") + 1
    assert said == blocks_of(PAGE)[after].text
    assert sorted(one.sent() + two.sent()) == sorted(f"{number}@example.com" for number in range(400)), "each job once"
    assert min(len(one.sent()), len(two.sent())) > 20, "both take their part"
    assert not (third.folder / "sent.log").exists()
