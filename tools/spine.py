"""Runs one real job and prints its way through the code: every file it touches, and its spine.

    python tools/spine.py [--calls] [sqlite] [redis] [postgres]

A worker lives in this process. After some jobs that warm everything up, single jobs are enqueued and their results
awaited, each while nothing else is asked for. `sys.setprofile` sees every call of a function of src/limpet, in every
thread.

*All files*: the files with a function that ran between the call of `enqueue` and the answer of `result`, in each of the
jobs that were traced. (A heartbeat that happens to fall into one of them is not part of a job. Nor is a look that a
sleeping worker on SQLite takes by the clock: on a busy machine it falls into every job, so here it takes none.)

*The spine* is the chain of calls that carry the job, from `enqueue` to the handler to `settle` to `result`. It is found
like this:

- The job changes hands at the *stations* of `WAY`: a caller gives it to the producer, the producer to the store, and so
  on. Each must be reached, in this order. A job that reaches them otherwise (on a busy machine it may end before its
  result is asked for) does not count; when none does, the script fails: then the table is out of date.
- The files of the spine are those on the call stack when a station is reached. So every wrapper, callback and lambda
  that a call passes through counts. A call that has returned by then does not: records, decisions of core, checks.
- A *hop* is a call from one file of the spine into another one. Both counts are printed: a hop that is made again (as
  into the writer of SQLite, with every verb) counted once, and each time.
- A *turn* is a return into a file already left, in order to go on from there with the job: the call below had gone
  through at least one more file, or through the handler. A call back is a turn, too: a file of the spine was handed a
  function, and calls into a file from which the way had come. Where the job comes to rest (in a queue, in the store),
  the next task, thread or worker takes it from there; that is neither a hop nor a turn.

With `--calls` each file that is touched is followed by what was called there, and from where.

The engine of SQLite is Python and counts down to the function that writes the job; Lua and SQL are in no count.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import limpet
import limpet.stores.sqlite.store as sqlite_store
from limpet import Limpet
from limpet.client.task import Task
from limpet.stores.base import Migrates
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES

PACKAGE: Final = f"{Path(limpet.__file__).parent}/"
WARM_UP: Final = 20
TRACED: Final = 5
TRIES: Final = 40  # jobs, until enough of them have taken the usual way
QUIET_S: Final = 0.4  # between two jobs: until the worker sleeps again
PATIENCE_S: Final = 30.0
HANDLER: Final = "handler"
CALLS: Final = "--calls"


class Station(NamedTuple):
    """Where the job changes hands: a function, called below `via`. `rests`: others take the job from there."""

    step: str
    function: str
    via: str = ""
    rests: bool = False

    def reached_by(self, reached: Reached) -> bool:
        return reached.function == self.function and self.via in ("", *map(file_of, reached.names))


RUN: Final = (
    Station("hold", "runtime/local_queue.py:LocalQueue.push"),
    Station("hold", "runtime/executor.py:Executor.wake", rests=True),
    Station("run", "runtime/local_queue.py:LocalQueue.pop"),
    Station("run", HANDLER),
    Station("run", "runtime/settler.py:SettleQueue.put", rests=True),
)
ASK: Final = Station("ask", "client/producer.py:SharedBatch.send_alone")
NEWS: Final = Station("wake", "runtime/local_queue.py:ClaimSignal.news", via="runtime/fetcher.py", rests=True)


def _sqlite() -> tuple[Station, ...]:
    queued, told = "stores/sqlite/writer.py:Writer.submit", "stores/waiters.py:Waiters.deliver"
    return (
        ASK,
        Station("store", queued, rests=True),
        Station("store", "stores/sqlite/hand_off.py:_claimed", rests=True),
        Station("wake", told, rests=True),
        *RUN,
        Station("settle", queued, via="runtime/settler.py", rests=True),
        Station("settle", "stores/sqlite/settle.py:_apply", rests=True),
        Station("result", told, rests=True),
        Station("result", queued, via="client/handle.py", rests=True),
        Station("result", "stores/sqlite/views.py:views", rests=True),
    )


def _server(engine: str) -> tuple[Station, ...]:
    sent, told = f"stores/{engine}/connection.py:Connection.send", "stores/waiters.py:Waiters.deliver"
    return (
        ASK,
        Station("store", sent, via="client/producer.py", rests=True),
        Station("wake", told, rests=True),
        *(() if engine == "redis" else (NEWS, Station("claim", sent, via="runtime/fetcher.py"))),
        *RUN,
        Station("settle", sent, via="runtime/settler.py", rests=True),
        Station("result", told, rests=True),
        Station("result", sent, via="client/handle.py", rests=True),
    )


WAY: Final = {
    "sqlite": _sqlite(),
    "redis": _server("redis"),
    "postgres": _server("postgres"),
}


class Reached(NamedTuple):
    """A function of a station was called: the stack, outermost first, and the names of its functions."""

    stack: tuple[FrameType, ...]
    names: tuple[str, ...]

    @property
    def function(self) -> str:
        return self.names[-1]


class Trace:
    """What ran while it was armed."""

    def __init__(self, stations: frozenset[str]) -> None:
        self._stations = stations
        self._names: dict[CodeType, str | None] = {}
        self.armed = False

    def begin(self) -> None:
        """Forget the job before, and look."""
        self._seen: set[FrameType] = set()
        self.files: set[str] = set()
        self.calls: set[tuple[str, str]] = set()
        self.crossings = 0
        self.called_back: dict[FrameType, str] = {}  # who called back, and which file
        self.reached: list[Reached] = []
        self.armed = True

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.armed or event != "call" or (name := self._name(frame.f_code)) is None:
            return
        file = file_of(name)
        if file != HANDLER:
            self.files.add(file)
        stack = [frame, *self._outward(frame.f_back)]
        names = [self._name(each.f_code) or "" for each in stack]
        if len(stack) > 1 and file_of(names[1]) != file:
            self.crossings += 1
            self.calls.add((names[1], name))
            if file in map(file_of, names[2:]):
                self.called_back[stack[1]] = file
        if name in self._stations and frame not in self._seen:  # an await that is resumed is a call, too
            self._seen.add(frame)
            self.reached.append(Reached(tuple(reversed(stack)), tuple(reversed(names))))

    def _name(self, code: CodeType) -> str | None:
        """`room/file.py:Class.function` of code of the package; None for other code."""
        if code not in self._names:
            self._names[code] = name_of(code)
        return self._names[code]

    def _outward(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The frames of the package, from this one outwards, up to the event loop."""
        while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
            if self._name(frame.f_code) is not None:
                yield frame
            frame = frame.f_back


def name_of(code: CodeType) -> str | None:
    if code.co_filename == __file__:
        return HANDLER if code.co_name == HANDLER else None
    if not code.co_filename.startswith(PACKAGE):
        return None
    return f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"


def file_of(name: str) -> str:
    return name.partition(":")[0]


class Strayed(Exception):
    """A job did not come to this station, in its turn."""


class Spine:
    """The way of one job, put together from the stacks at its stations."""

    def __init__(self, way: tuple[Station, ...], trace: Trace) -> None:
        self.files: list[str] = []
        self.hops: list[tuple[str, str]] = []
        self.turns: list[str] = []
        self.lines: list[tuple[str, str]] = []
        under_way: list[Reached] = []  # calls that may go on with the job
        rest = iter(trace.reached)
        for station in way:
            reached = next((each for each in rest if station.reached_by(each)), None)
            if reached is None:
                raise Strayed(station)
            before = next((each for each in reversed(under_way) if each.stack[0] is reached.stack[0]), None)
            self._walk(station.step, before, reached)
            self.turns += [
                f"{file_of(name)} calls {trace.called_back[frame]} back"
                for frame, name in zip(reached.stack, reached.names, strict=True)
                if frame in trace.called_back
            ]
            under_way = [each for each in under_way if each is not before]
            if not station.rests:
                under_way.append(reached)

    def _walk(self, step: str, before: Reached | None, reached: Reached) -> None:
        """Go from the innermost frame that both stacks have to the station."""
        shared = 0
        if before is not None:
            shared = sum(a is b for a, b in zip(before.stack, reached.stack, strict=False))
        names = reached.names[max(0, shared - 1) :]
        files = without_repeats([file_of(name) for name in names])
        left = set() if before is None else set(map(file_of, before.names[shared:])) - {files[0]}
        if len(left) > 1:
            self.turns.append(f"back in {files[0]}")
        self.hops += [hop for hop in pairwise(files) if HANDLER not in hop]
        self.files += [file for file in files if file not in self.files and file != HANDLER]
        self.lines.append((step, ("… " if shared else "") + " → ".join(shown(names))))

    def said(self) -> list[str]:
        """The figures, in lines: of all rooms, and of those beside the stores."""
        distinct = set(self.hops)
        ours = [file for file in self.files if not is_store(file)]
        begun = {hop for hop in distinct if not is_store(hop[0])}
        return [
            f"spine of {len(self.files)} files, {len(distinct)} hops ({len(self.hops)} counted each time), "
            f"{len(self.turns)} turns",
            f"of which client and runtime: {len(ours)} files, {len(begun)} hops "
            f"({sum(not is_store(hop[0]) for hop in self.hops)} counted each time)",
        ]


def is_store(file: str) -> bool:
    return file.startswith("stores/")


def without_repeats(files: list[str]) -> list[str]:
    return [file for n, file in enumerate(files) if not n or file != files[n - 1]]


def shown(names: tuple[str, ...]) -> list[str]:
    """The last function of each visit to a file."""
    return [
        name.replace(".py:", ".")
        for n, name in enumerate(names)
        if n == len(names) - 1 or file_of(names[n + 1]) != file_of(name)
    ]


class Run(NamedTuple):
    """What was seen of one job."""

    files: set[str]
    calls: set[tuple[str, str]]
    crossings: int
    spine: Spine


async def one_job(task: Task[..., int], number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        assert await (await task.enqueue(number)).result() == number + 1


async def traced(app: Limpet, trace: Trace, way: tuple[Station, ...]) -> list[Run]:
    """Run jobs one by one beside a worker; what was seen of those that count."""

    async def handler(number: int) -> int:
        return number + 1

    task = app.task(name="spine")(handler)
    stop = asyncio.Event()
    working = asyncio.create_task(app.work(stop=stop))
    for number in range(WARM_UP):
        await one_job(task, number)
    runs: list[Run] = []
    strayed: Strayed | None = None
    for number in range(TRIES):
        await asyncio.sleep(QUIET_S)
        trace.begin()
        await one_job(task, number)
        trace.armed = False
        try:
            runs.append(Run(trace.files, trace.calls, trace.crossings, Spine(way, trace)))
        except Strayed as error:
            strayed = error
        if len(runs) == TRACED:
            break
    stop.set()
    await working
    await app.close()
    if not runs:
        raise SystemExit(f"spine: no job came to {strayed}; bring WAY up to date")
    return runs


@contextlib.contextmanager
def url_of(engine: str) -> Iterator[str]:
    """An empty store of the engine, on a server of its own."""
    if engine == "redis":
        with redis.own(REDIS) as server:
            yield server.url
    elif engine == "postgres":
        with postgres.running(postgres.PostgresServer(POSTGRES, settings=postgres.CARELESS)) as server:
            yield server.url
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/jobs.db"


def report(engine: str, *, with_calls: bool) -> str:
    """Trace jobs on one engine; what there is to say."""
    way = WAY[engine]
    vars(sqlite_store)["LOOK_MS"] = round(PATIENCE_S * 1000)
    trace = Trace(frozenset(station.function for station in way))
    with url_of(engine) as url:
        app = Limpet(url)
        asyncio.run(prepared(app))
        threading.setprofile(trace.hook)
        sys.setprofile(trace.hook)
        try:
            runs = asyncio.run(traced(app, trace, way))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    files = sorted(set.intersection(*(run.files for run in runs)))
    fewest = min(runs, key=lambda run: (len(run.spine.files), run.crossings))
    lines = [
        f"{engine}: {len(files)} files touched, {len(fewest.calls)} distinct calls between files, "
        f"{fewest.crossings} in all",
        *(f"{engine}: {line}" for line in fewest.spine.said()),
        "",
        *(f"  {step:8}{text}" for step, text in fewest.spine.lines),
        "",
        *(f"  turn: {turn}" for turn in fewest.spine.turns),
        f"  spine: {', '.join(fewest.spine.files)}",
    ]
    for room in ("client", "core", "runtime", "stores"):
        touched = [file.partition("/")[2] for file in files if file.startswith(room)]
        lines.append(f"  touched in {room}: {len(touched)}: {', '.join(touched)}")
    if with_calls:
        lines += calls_into(files, fewest.calls)
    return "\n".join(lines) + "\n"


def calls_into(files: list[str], calls: set[tuple[str, str]]) -> Iterator[str]:
    """What each file was touched for."""
    for file in files:
        yield f"  {file}"
        yield from sorted(
            f"    {called.partition(':')[2]} <- {caller}" for caller, called in calls if file_of(called) == file
        )


async def prepared(app: Limpet) -> None:
    """Make the tables, where an engine has some and does not make them by itself."""
    if isinstance(app.store, Migrates):
        await app.store.migrate(lambda step: None)
    await app.close()


def main(args: list[str]) -> int:
    with_calls = CALLS in args
    engines = [arg for arg in args if arg != CALLS]
    if unknown := [engine for engine in engines if engine not in WAY]:
        raise SystemExit(f"spine: {', '.join(unknown)} is no engine; there are {', '.join(WAY)}")
    for engine in engines or list(WAY):
        sys.stdout.write(report(engine, with_calls=with_calls) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
