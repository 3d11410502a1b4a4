"""Says what the words of other task queues (Celery, Dramatiq, RQ, huey, arq and others) are called here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from limpet.core.errors import UnknownAttribute

_ENQUEUE: Final = "await it: .enqueue(...); without an event loop: .enqueue_sync(...)"
_OPTIONS: Final = "options come first: .options(delay=60, priority='high').enqueue(...)"
_DELAY: Final = "delay=60 or at=..., for a call: .options(delay=60).enqueue(...)"
_IN_TRANSACTION: Final = "in the caller's transaction: .options(conn=connection).enqueue(...)"
_CALL: Final = "call it to run it here and now: task(...)"
_CURRENT: Final = "current_job() is the running job, with its id, attempt, meta and more"
_RESULT: Final = "await .result(timeout=5), or .result_sync(timeout=5)"
_STATE: Final = "await .status(), or .status_sync(): its .state is one of seven words, such as 'succeeded'"
_RETRY: Final = "retry=Retry(attempts=6, base=1, factor=4, cap=300); all runs count, so 5 retries are attempts=6"
_TIMEOUT: Final = "timeout=30, in seconds, stops a job; hard_timeout= kills it"
_LEAVE: Final = "leave it out"
_DEATHS: Final = "@app.on_dead above def alert(job); @app.on_dead(tasks=['email.send']): of some tasks only"
_ENDS: Final = "@app.on_finished(states=['succeeded']) above def tell(job); it takes tasks=['email.send'], too"
_CHAIN: Final = "chain(fetch.job(1), load.job()); a chain passes each result on"


def _words(*entries: tuple[str, str]) -> Mapping[str, str]:
    """A table in which one answer serves several names, which stand in one text."""
    return MappingProxyType({name: answer for names, answer in entries for name in names.split()})


TASK: Final = _words(
    ("delay send kiq perform_async defer", _ENQUEUE),
    ("apply_async send_with_options configure kicker enqueue_job", _OPTIONS),
    ("delay_on_commit apply_async_on_commit", _IN_TRANSACTION),
    ("schedule enqueue_at enqueue_in", f"{_DELAY}; for times that come again: @app.schedule(Cron(...))"),
    ("s si signature subtask message message_with_options", f".job(...), for {_CHAIN}"),
    ("chunks map starmap", "group(task.job(n) for n in numbers), or app.enqueue_many(...)"),
    ("apply call_local fn run", _CALL),
    ("retry", "raise RetryLater(30) inside the task"),
    ("request", _CURRENT),
    ("update_state", "current_job().progress(3, 10, 'resized') inside the task"),
    ("AsyncResult", "app.get(id)"),
    ("link on_success", _ENDS),
    ("link_error on_failure on_error", _DEATHS),
)
APP: Final = _words(
    ("send_task enqueue_job defer configure_task", "await app.enqueue('email.send', {'to': 'a@b.c'})"),
    ("enqueue_call enqueue_at enqueue_in", f"await send_email.enqueue(...); {_DELAY}"),
    ("actor job shared_task db_task", "@app.task(...)"),
    (
        "periodic_task add_periodic_task crontab cron on_after_configure db_periodic_task",
        "@app.schedule(Cron('0 8 * * *'))",
    ),
    ("autodiscover_tasks imports discover_tasks", "Limpet(include=['shop.tasks'])"),
    (
        "conf config_from_object config_from_envvar",
        "options of Limpet(...), limpet.toml, LIMPET_URL; `limpet config` shows them",
    ),
    (
        "worker_main start run_worker run_worker_async Worker",
        "await app.work(), or the command: limpet worker shop.tasks:app",
    ),
    ("control inspect", "the commands: limpet workers, limpet jobs, limpet pause"),
    ("AsyncResult fetch_job", "app.get(id)"),
    ("broker backend connection result_backend", "app.url; one store keeps both jobs and results"),
    ("purge flush empty", "the command: limpet cancel state:pending queue:mail"),
    ("signature chain chord", "from limpet import chain, group, chord"),
    ("Task register_task", "@app.task(...) on a function"),
    ("on_failure on_error task_failure exception_handler", _DEATHS),
    ("on_success task_success task_postrun", _ENDS),
    ("on_after_finalize", "@app.on_startup, called in every worker process before its first job"),
)
JOB: Final = _words(
    ("get wait join get_result return_value result_info latest_result", _RESULT),
    ("ready successful failed state done is_finished is_failed is_queued is_started get_status is_ready", _STATE),
    ("info meta_info get_meta", "await .status(): its .progress"),
    ("traceback exc_info", "await .result() raises JobDead, with .error and .traceback"),
    ("revoke abort delete terminate", "await .cancel('why'), or .cancel_sync('why')"),
    ("forget", f"{_LEAVE}: results go after a day; [retention] in limpet.toml changes it"),
    ("then link add_done_callback", _CHAIN),
    ("link_error on_error", _DEATHS),
    ("refresh fetch", "await .status() asks the store each time"),
    ("task_id job_id message_id", ".id"),
    ("retry requeue", "the command: limpet retry ID"),
)
CONTEXT: Final = _words(
    ("retry", "raise RetryLater(30)"),
    ("request", f"{_LEAVE}: what it held is here, such as .id and .attempt"),
    ("update_state set_progress", ".progress(3, 10, 'resized')"),
    ("retries job_try", ".attempt, which counts from 1"),
    ("max_retries max_tries", ".max_attempts; all runs count"),
    ("abort revoke", "raise Cancel('why'), or Dead('why')"),
    ("replace", "enqueue the other task and return"),
    ("delivery_info", ".queue and .priority"),
    ("job_id task_id message_id", ".id"),
)
OPTIONS: Final = _words(
    ("countdown defer_by _defer_by schedule_in", "delay=60, for a call: .options(delay=60).enqueue(...)"),
    ("eta defer_until _defer_until schedule_at run_at", "at=..., for a call: .options(at=...).enqueue(...)"),
    ("expires ttl max_age age_limit _expires", "expires_in=60, for a call: .options(expires_in=60).enqueue(...)"),
    ("bind context pass_context", f"{_LEAVE}, and the parameter self; {_CURRENT}"),
    ("max_retries max_tries retries attempts max_attempts", _RETRY),
    (
        "default_retry_delay retry_delay retry_backoff retry_backoff_max retry_jitter",
        f"{_RETRY}; or delays: retry=[1, 10, 60]",
    ),
    ("min_backoff max_backoff retry_kwargs retry_intervals retry_strategy", f"{_RETRY}; or delays: retry=[1, 10, 60]"),
    (
        "autoretry_for retry_for retry_on dont_autoretry_for retry_when throws",
        "errors are retried unless their kind is permanent; classify=... changes the kind of an error",
    ),
    ("rate rate_limit", 'limits=[Limit("key", rate="10/m")]'),
    ("concurrency max_concurrency lock task_lock", 'limits=[Limit("key", concurrency=3)]'),
    ("budget budgets", 'pass it among limits=[Budget("llm:{team}", usd=50)]'),
    (
        "ignore_result store_result store_results",
        f"{_LEAVE}: results go after a day; [retention] in limpet.toml changes it",
    ),
    ("result_ttl result_expires keep_result failure_ttl", "[retention] in limpet.toml, or limpet retention set"),
    (
        "acks_late reject_on_worker_lost acks_on_failure_or_timeout",
        f"{_LEAVE}: a job ends when its attempt does, and one of a lost worker runs again; max_lost=1: at most once",
    ),
    ("time_limit soft_time_limit job_timeout hard_time_limit", _TIMEOUT),
    ("track_started send_events", f"{_LEAVE}: a job that runs is in state running"),
    ("serializer compression content_type", f"{_LEAVE}: arguments and results are JSON"),
    ("routing_key exchange queue_name _queue_name", 'queue="mail"'),
    ("link", _CHAIN),
    ("on_success", _ENDS),
    ("link_error on_failure on_retry_exhausted errback", _DEATHS),
    (
        "task_id job_id _job_id message_id",
        'id=..., for a call; unique="order:7" makes a second call answer the first job',
    ),
    (
        "singleton once queueing_lock unique_key deduplication_id",
        'unique="order:7", or unique=True: the arguments are the key',
    ),
    ("depends_on dependencies", "after=[other], for a call: .options(after=[other]).enqueue(...)"),
    ("at_front", 'priority="critical"'),
    ("args kwargs", "pass the arguments themselves: .enqueue('acme', to='a@b.c')"),
    ("actor_name task_name", 'name="email.send"'),
    ("base", f"{_LEAVE}: @app.middleware wraps every attempt, @app.resource shares a client"),
    ("run_every crontab cron schedule", "@app.schedule(Cron('0 8 * * *')) above @app.task"),
)
COMMANDS: Final = _words(
    ("beat scheduler", "schedules run in every worker: limpet worker, limpet schedules"),
    ("inspect status info", "limpet workers, limpet stats"),
    ("purge flush empty", "limpet cancel state:pending queue:mail"),
    ("revoke", "limpet cancel ID"),
    ("result", "limpet job ID"),
    ("call send", "limpet enqueue TASK JSON"),
    ("requeue replay", "limpet retry ID, limpet rerun ID"),
    ("consumer run", "limpet worker shop.tasks:app"),
    ("monitor", "limpet events, limpet stats"),
)


def answers(label: str, words: Mapping[str, str]) -> Callable[[object, str], NoReturn]:
    """The `__getattr__` of a class: a word of others is answered with ours, any other as Python does.

    Type checkers must not see it, or they would accept every attribute.
    """

    def missing(self: object, name: str) -> NoReturn:
        if (answer := words.get(name)) is not None:
            raise UnknownAttribute(f"{label} has no .{name}", fix=answer)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return missing


def option_of_others(name: str, elsewhere: Iterable[str], place: str) -> str | None:
    """What an unknown option is called here, or that it is known at another `place`; None when it is known nowhere."""
    if (answer := OPTIONS.get(name)) is not None:
        return answer
    return place.format(name) if name in elsewhere else None
