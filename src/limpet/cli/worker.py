"""The command that runs an app's tasks: looks at the app first, then becomes its supervisor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from limpet import __version__
from limpet.cli.apps import app_reference
from limpet.cli.logs import log_options, log_settings, say_line
from limpet.cli.preflight import Answer, Question, ask, worst
from limpet.cli.terminal import Terminal
from limpet.cli.words import command, duration, place
from limpet.core.errors import UsageError
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import text_of_ms, to_ms
from limpet.ops.codes import OK, REFUSED
from limpet.stores.open import located, redacted

if TYPE_CHECKING:
    from limpet.core.jobs.view import Retention
    from limpet.core.settings import RetentionTable, Seconds
    from limpet.core.text.place import Place
    from limpet.runtime.log_setup import LogSettings
    from limpet.runtime.settings import Reserve, WorkerSettings
    from limpet.runtime.supervisor import Supervisor, SupervisorSettings


@click.argument("app", required=False, metavar="[MODULE:ATTR]")
@click.option("--app", "app_flag", metavar="MODULE:ATTR", help="The app (LIMPET_APP).")
@click.option("--queues", metavar="A,B", help="Only these queues; all that its tasks use by default.")
@click.option("--no-hooks", is_flag=True, help="Leave the hooks of the app to other workers.")
@click.option("--concurrency", type=click.IntRange(1), help="Jobs of any priority at once in each process (100).")
@click.option("--threads", type=click.IntRange(1), help="Threads for sync tasks in each process (16).")
@click.option("--processes", type=click.IntRange(1), help="Worker processes (1).")
@click.option("--job-processes", type=click.IntRange(1), help="Process jobs at once in each process (one per core).")
@click.option(
    "--reserve", type=click.IntRange(0), help="More jobs and threads at once, for urgent jobs alone (a tenth)."
)
@click.option("--claim-ahead", type=duration, help="Hold no more work ahead than takes so long (10ms); 0: none.")
@click.option("--ageing", type=click.IntRange(2), metavar="N", help="Claim one job in N past more urgent ones.")
@click.option("--grace", type=duration, help="How long running jobs may take to end after SIGTERM (25 s).")
@click.option("--cut-off", type=duration, help="End with exit code 5 when the store stays away so long (10m).")
@click.option("--no-wait", is_flag=True, help="Do not wait for a store that is away at the start: exit code 5.")
@click.option("--capability", "capabilities", multiple=True, metavar="NAME", help="What jobs may need; repeatable.")
@click.option("--code-version", metavar="TEXT", help="Of the code, for `workers` and `doctor` (LIMPET_CODE_VERSION).")
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after this number of jobs.")
@click.option("--max-memory-mb", type=click.IntRange(1), help="Replace a process above this size.")
@click.option("--metrics", type=place, metavar="[HOST:]PORT", help="Answer /metrics here, for Prometheus.")
@click.option("--probe-port", type=place, metavar="[HOST:]PORT", help="Answer /healthz and /readyz here.")
@click.option("--strict", is_flag=True, help="Refuse to start when the engine has a warning.")
@log_options("Of our lines, and of the app's if the worker sets up its logging (info).")
@click.option("--no-log-setup", is_flag=True, help="Leave logging to the app, the log of its jobs included.")
async def worker_body(
    terminal: Terminal,
    app: str | None,
    app_flag: str | None,
    strict: bool,
    no_wait: bool,
    log: str | None,
    log_level: str | None,
    no_log_setup: bool,
    probe_port: Place | None,
    metrics: Place | None,
    **flags: Any,
) -> int:
    """Run the tasks of an app until SIGTERM: then finish what fits the grace and hand back the rest, unspent."""
    reference = app_reference(app or app_flag)
    if reference is None:
        raise UsageError("which app?", fix="limpet worker shop.tasks:app, --app or LIMPET_APP")
    file = terminal.config.file.worker
    style = log or ("json" if terminal.json else None)
    logs = log_settings(style, log_level, file, setup=file.log_setup and not no_log_setup, otherwise="INFO")
    terminal.json_log = logs.style == "json"
    settings = _settings(terminal, reference, flags, logs)
    from limpet.runtime.log_setup import AppLogging
    from limpet.runtime.metrics_book import MetricsBook
    from limpet.runtime.metrics_server import exposed
    from limpet.runtime.probe import probed
    from limpet.runtime.service_manager import ServiceManager
    from limpet.runtime.supervisor import Supervisor

    AppLogging(replace(logs, app=True)).complete()  # of this process, which never imports the app
    supervisor, service = Supervisor(settings), ServiceManager()
    # First of all: the app may be imported for long, and a signal then is an order too.
    with supervisor.obeys_signals():
        async with (
            probed(_place(probe_port, file.probe_port, "probe_port"), supervisor.health) as probes,
            exposed(_place(metrics, file.metrics, "metrics"), book := MetricsBook()) as metrics_at,
            service.attended(supervisor.health, supervisor.stopping),
        ):
            supervisor.book = book if metrics_at is not None else None
            return await _start(terminal, settings, supervisor, _Start(strict, no_wait, probes, metrics_at))


class _Start(NamedTuple):
    """How one start of the command is meant."""

    strict: bool
    no_wait: bool
    probes: Place | None  # where they are answered
    metrics: Place | None


async def _start(terminal: Terminal, settings: SupervisorSettings, supervisor: Supervisor, start: _Start) -> int:
    """Look at the app, say what starts, and supervise it; the exit code."""
    answer = await ask(_question(terminal, settings, wait=not start.no_wait), supervisor.stopping)
    if answer is None:
        return OK.exit
    if answer.refusal is not None:
        refusal = answer.refusal
        terminal.refuse(refusal.code, refusal.message, refusal.fix)
        return refusal.exit
    _check(terminal, settings.app_ref, answer, settings.worker)
    _banner(terminal, answer, settings, start)
    if start.strict and worst(answer.findings):
        fix = "" if not terminal.json else "the notes before this one say what to change"
        terminal.refuse("refused", "--strict refuses to start with these warnings", fix)
        return REFUSED.exit
    return await supervisor.run()


def _place(flag: Place | None, said: int | str | None, name: str) -> Place | None:
    """Where something is answered, by the flag or else the [worker] table."""
    from limpet.core.text.place import place_of

    return flag or (None if said is None else place_of(said, what=f"[worker] {name}"))


def _settings(terminal: Terminal, reference: str, flags: dict[str, Any], logs: LogSettings) -> SupervisorSettings:
    """What the flags say, else the [worker] table, else the defaults."""
    from limpet.runtime.settings import WorkerSettings
    from limpet.runtime.supervisor import SupervisorSettings

    file = terminal.config.file.worker
    queues = tuple(_names(flags["queues"]) or file.queues or ()) or None
    given: dict[str, Any] = {
        "queues": queues,
        "hooks": False if flags["no_hooks"] else file.hooks,
        "capabilities": tuple(flags["capabilities"] or file.capabilities or ()),
        "code_version": flags["code_version"],
        "concurrency": flags["concurrency"] or file.concurrency,
        "threads": flags["threads"] or file.threads,
        "job_processes": flags["job_processes"] or file.job_processes,
        "reserve": flags["reserve"] if flags["reserve"] is not None else file.reserve,
        "ahead_ms": flags["claim_ahead"] if flags["claim_ahead"] is not None else _ms(file.claim_ahead, "claim_ahead"),
        "ageing": flags["ageing"] or file.ageing,
        "grace_ms": flags["grace"] if flags["grace"] is not None else _ms(file.grace, "grace"),
        "cut_off_ms": flags["cut_off"] if flags["cut_off"] is not None else _ms(file.cut_off, "cut_off"),
        "max_jobs": flags["max_jobs"] or file.max_jobs,
        "max_memory_bytes": _bytes(flags["max_memory_mb"] or file.max_memory_mb),
        "retention": _retention(terminal.config.file.retention),
    }
    worker = WorkerSettings(**{name: value for name, value in given.items() if value is not None})
    return SupervisorSettings(
        app_ref=reference,
        path=(os.getcwd(),),
        processes=flags["processes"] or file.processes or 1,
        url=terminal.flag_url,
        namespace=terminal.flag_namespace,
        log=logs,
        worker=worker,
    )


def _question(terminal: Terminal, settings: SupervisorSettings, *, wait: bool) -> Question:
    return Question(
        settings.app_ref,
        terminal.flag_url,
        terminal.flag_namespace,
        wait_ms=settings.worker.cut_off_ms if wait else 0,
        log=settings.log,
    )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _ms(value: Seconds | None, what: str) -> int | None:
    return None if value is None else to_ms(value, what=what)


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * 1024 * 1024


def _retention(table: RetentionTable) -> Retention:
    from limpet.core.jobs.retention import FOREVER
    from limpet.core.jobs.view import Retention

    names = {"succeeded": "succeeded_ms", "cancelled": "cancelled_ms", "dead": "dead_ms", "audit": "audit_ms"}
    names["events"] = "event_ms"
    said: dict[str, Any] = {name: value for name in names if (value := getattr(table, name)) is not None}
    for name, value in said.items():
        said[name] = None if value == FOREVER else _ms(value, f"retention.{name}")
    return Retention(**{names[name]: ms for name, ms in said.items()})


def _check(terminal: Terminal, reference: str, answer: Answer, settings: WorkerSettings) -> None:
    if not answer.shared:
        raise UsageError(
            f"{redacted(answer.url)} is a store in memory, which lives in one process: a worker would find nothing",
            fix="name a file: --url sqlite:///jobs.db; or run app.work() inside the process that enqueues",
        )
    if not answer.tasks:
        raise UsageError(f"{reference} declares no tasks", fix="decorate a function with @app.task")
    for queue in settings.queues or ():
        if queue not in answer.queues:
            terminal.say(
                f"note: no task of {reference} uses queue {queue!r} by itself; {did_you_mean(queue, answer.queues)}",
                keep=True,
            )


def _banner(terminal: Terminal, answer: Answer, settings: SupervisorSettings, start: _Start) -> None:
    from limpet.runtime.settings import Reserve

    worker, reference = settings.worker, settings.app_ref
    queues = list(worker.served(answer.queues))
    reserve = Reserve.of(worker, answer.urgent)
    if terminal.json or terminal.json_log:
        shape = {
            "version": __version__,
            "app": reference,
            "url": located(answer.url),
            "made": answer.made,
            "namespace": answer.namespace,
            "queues": queues,
            "tasks": list(answer.tasks),
            "processes": settings.processes,
            "concurrency": worker.concurrency,
            "threads": worker.threads,
            "job_processes": worker.job_processes,
            "reserve": {"jobs": reserve.slots, "threads": reserve.threads},
            "pid": os.getpid(),
            **({"probes": f"http://{start.probes}"} if start.probes else {}),
            **({"metrics": f"http://{start.metrics}/metrics"} if start.metrics else {}),
        }
        if terminal.json:
            terminal.answer(shape)
        else:
            say_line("info", "worker starts", **shape)
    else:
        plural = "process" if settings.processes == 1 else "processes"
        terminal.say(f"limpet {__version__} worker {os.getpid()}: {reference}")
        terminal.say(f"  tasks   {', '.join(sorted(answer.tasks))}")
        terminal.say(f"  store   {located(answer.url)}, namespace {answer.namespace}")
        terminal.say(f"  queues  {', '.join(queues)}")
        terminal.say(f"  slots   {settings.processes} {plural}, each with {_places(worker, answer, reserve)}")
        terminal.say(f"  grace   {text_of_ms(worker.grace_ms)}")
        if start.probes:
            terminal.say(f"  probes  http://{start.probes}/healthz and /readyz")
        if start.metrics:
            terminal.say(f"  metrics http://{start.metrics}/metrics")
        terminal.say_made(answer.made)
    for finding in worst(answer.findings):
        if terminal.json_log and not terminal.json:
            say_line(finding.level, finding.text, code=finding.code, fix=finding.fix)
        else:
            fix = f"\n  {finding.fix}" if finding.fix else ""
            terminal.say(f"{finding.level}: {finding.text}{fix}", keep=True)


def _places(worker: WorkerSettings, answer: Answer, reserve: Reserve) -> str:
    """How many jobs run at once, of each executor that a task needs, and what is kept on top of that."""
    sizes = [_count(worker.concurrency, "job")]
    if "thread" in answer.executors:
        sizes.append(_count(worker.threads, "thread"))
    if "process" in answer.executors:
        sizes.append(_count(worker.job_processes, "job process", "es"))
    kept = _count(reserve.slots, "job")
    if reserve.threads and "thread" in answer.executors:
        kept += f" and {_count(reserve.threads, 'thread')}"
    urgent = f"; {kept} more if urgent" if reserve.slots else "; none kept for urgent jobs"
    return ", ".join(sizes) + urgent


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


worker = command("worker")(worker_body)
