"""Alerts begin, fire and resolve by rules with hysteresis, and each firing and each recovery is told once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.alerts.book import Alert, Book, Condition, KeptBook, Notice, Sample, Silence, read_book
from limpet.core.alerts.conditions import Facts, Late, Rate, conditions, sampled
from limpet.core.alerts.decide import MOST_SUBJECTS, decide
from limpet.core.alerts.delivery import SIGNATURE, TIMESTAMP, call_of, delivery_job, signature
from limpet.core.alerts.rule import DEFAULTS, AlertRules, Rule, RuleName, WebhookRef, read_rules
from limpet.core.alerts.webhook import Webhook
from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS, Gate, GateRule, Pause
from limpet.core.jobs.lease import Serves, SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Counts, Finding, QueueView
from limpet.core.settings import parse_settings

NOW = 1_700_000_000_000
MINUTE = 60_000
SLOW = Rule("no_worker", "task", for_ms=MINUTE, clear_after_ms=2 * MINUTE)
RULES = AlertRules((SLOW,), (WebhookRef("pager"),))
HOLDS = {"no_worker": [Condition("no_worker", "send", "1 job waits", 1, "mail")]}
QUIET: dict[str, list[Condition]] = {"no_worker": []}


def looked(book: Book, *looks: tuple[int, dict[str, list[Condition]]], rules: AlertRules = RULES) -> list[Book]:
    """The book after each of these looks."""
    books = []
    for at_ms, found in looks:
        book = decide(book, found, rules, at_ms)
        books.append(book)
    return books


def told(books: list[Book]) -> list[str]:
    return [f"{notice.state}@{(notice.at_ms - NOW) // 1000}" for book in books for notice in book.notices]


# -- one alert


def test_it_fires_once_its_condition_has_held_and_resolves_once_it_has_not_for_long_enough() -> None:
    at = [NOW + second * 1000 for second in (0, 30, 60, 90, 120, 150, 180, 300)]
    found = [HOLDS, HOLDS, HOLDS, HOLDS, QUIET, HOLDS, QUIET, QUIET]
    books = looked(Book(), *zip(at, found, strict=True))
    states = [book.alerts[0].state for book in books]
    assert states == ["pending", "pending", "firing", "firing", "firing", "firing", "firing", "resolved"]
    assert told(books) == ["firing@60", "resolved@300"]
    assert [book.revision for book in books] == [0, 0, 1, 1, 1, 1, 1, 2]


def test_what_was_pending_and_holds_no_longer_is_forgotten() -> None:
    books = looked(Book(), (NOW, HOLDS), (NOW + 30_000, QUIET), (NOW + 60_000, HOLDS))
    assert [len(book.alerts) for book in books] == [1, 0, 1]
    assert books[-1].alerts[0].since_ms == NOW + 60_000


def test_a_rule_that_was_not_looked_at_changes_nothing() -> None:
    firing = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS))[-1]
    later = decide(firing, {}, RULES, NOW + 60 * MINUTE)
    assert later.alerts == firing.alerts
    assert later.notices == ()


def test_a_rule_that_is_switched_off_resolves_what_was_told_and_forgets_the_rest() -> None:
    firing = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS))[-1]
    off = decide(firing, {}, AlertRules(()), NOW + 2 * MINUTE)
    assert (off.alerts[0].state, told([off])) == ("resolved", ["resolved@120"])
    pending = looked(Book(), (NOW, HOLDS))[-1]
    assert decide(pending, {}, AlertRules(()), NOW + 1).alerts == ()


def test_an_alert_that_fires_again_is_another_one() -> None:
    books = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS), (NOW + 2 * MINUTE, QUIET), (NOW + 4 * MINUTE, QUIET))
    again = looked(books[-1], (NOW + 5 * MINUTE, HOLDS), (NOW + 6 * MINUTE, HOLDS))
    assert [alert.state for alert in again[-1].alerts] == ["firing", "resolved"]
    keys = {notice.job_id("pager") for book in (*books, *again) for notice in book.notices}
    assert len(keys) == 3


# -- silences


def silenced(book: Book, until_ms: int, pattern: str = "no_worker:*") -> Book:
    return book.silenced(Silence(pattern, until_ms, "ada", NOW), NOW)


def test_under_a_silence_nothing_fires_aloud_and_what_still_fires_at_its_end_is_told_then() -> None:
    book = silenced(Book(), NOW + 5 * MINUTE)
    books = looked(book, (NOW, HOLDS), (NOW + MINUTE, HOLDS), (NOW + 4 * MINUTE, HOLDS), (NOW + 5 * MINUTE, HOLDS))
    assert books[1].alerts[0].state == "firing"
    assert [len(each.notices) for each in books] == [0, 0, 0, 1]


def test_what_fired_and_resolved_under_a_silence_is_never_told() -> None:
    book = silenced(Book(), NOW + 60 * MINUTE)
    looks = [(NOW, HOLDS), (NOW + MINUTE, HOLDS), (NOW + 2 * MINUTE, QUIET), (NOW + 4 * MINUTE, QUIET)]
    books = looked(book, *looks)
    assert books[-1].alerts[0].state == "resolved"
    assert told(books) == []


def test_the_end_of_what_was_told_is_told_under_a_silence_too() -> None:
    firing = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS))[-1]
    book = silenced(firing, NOW + 60 * MINUTE, "no_worker")
    assert told(looked(book, (NOW + 2 * MINUTE, QUIET), (NOW + 4 * MINUTE, QUIET))) == ["resolved@240"]


def test_silences_cover_what_they_name_and_end() -> None:
    book = silenced(silenced(Book(), NOW + 10, "no_worker:send"), NOW + 20, "budget")
    assert book.silence_of("no_worker", "send", NOW) is not None
    assert book.silence_of("no_worker", "other", NOW) is None
    assert book.silence_of("budget", "usd/day:x", NOW + 19) is not None
    assert book.silence_of("budget", "usd/day:x", NOW + 20) is None
    assert book.silenced(Silence("store", NOW + 30, "ada", NOW), NOW + 15).silences[0].pattern == "budget"
    assert silenced(book, NOW, "budget").silences[0].pattern == "no_worker:send"


# -- bounds


def test_a_rule_has_at_most_fifty_alerts_at_once_the_worst_first() -> None:
    many = [Condition("no_worker", f"t{number}", "waits", number) for number in range(1_000)]
    book = decide(Book(), {"no_worker": many}, RULES, NOW)
    assert len(book.alerts) == MOST_SUBJECTS
    assert {alert.number for alert in book.alerts} == set(range(950, 1_000))
    later = decide(book, {"no_worker": [*many, Condition("no_worker", "new", "waits", 5_000)]}, RULES, NOW + MINUTE)
    assert "new" not in {alert.subject for alert in later.alerts}


def test_a_condition_that_is_seen_twice_is_one_alert() -> None:
    book = decide(Book(), {"no_worker": HOLDS["no_worker"] * 2}, RULES, NOW)
    assert len(book.alerts) == 1


def test_what_could_not_be_told_is_told_with_the_next_revision() -> None:
    firing = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS))[-1]
    later = decide(firing, HOLDS, RULES, NOW + 2 * MINUTE, firing.notices)
    assert (later.revision, later.notices) == (2, firing.notices)


def test_resolved_alerts_stay_for_a_day() -> None:
    over = Alert("budget", "x", "", NOW, fired_ms=NOW, resolved_ms=NOW)
    assert decide(Book((over,)), QUIET, RULES, NOW + 86_399_999).alerts == (over,)
    assert decide(Book((over,)), QUIET, RULES, NOW + 86_400_000).alerts == ()


# -- conditions


def counts(*, queues: tuple[QueueView, ...] = (), **jobs: int) -> Counts:
    """Counts by words such as mail_send_dead=3."""
    now = {}
    for word, number in jobs.items():
        queue, task, state = word.rsplit("_", 2)
        now[queue.replace("__", "."), task, State(state)] = number
    return Counts(now, 0, 0, 0, 0, 0, 0, queues)


def facts(seen: Counts | None = None, **more: Any) -> Facts:
    found = Facts(seen or counts(), (), (), ())
    return replace(found, **more)


def holding(name: RuleName, seen: Facts, rule: Rule | None = None) -> dict[str, str] | None:
    """The subjects for which a rule's condition holds, with its words; None: it was not looked at."""
    found = conditions(seen, AlertRules((rule or DEFAULTS[name],)), NOW).get(name)
    return None if found is None else {one.subject: one.text for one in found}


def test_dead_letters_are_told_by_queue_with_the_tasks() -> None:
    seen = facts(counts(mail_send_dead=2, mail_read_dead=1, pdf_make_dead=0, pdf_make_ready=5))
    assert holding("dead_letters", seen) == {"mail": "3 dead jobs wait for a person in queue mail: send (2), read (1)"}
    five = replace(DEFAULTS["dead_letters"], at_least=5, each={"mail": 3})
    assert holding("dead_letters", seen, five) == {
        "mail": "3 dead jobs wait for a person in queue mail: send (2), read (1)"
    }
    assert holding("dead_letters", seen, replace(five, each={"mail": 4})) == {}
    assert holding("dead_letters", seen, replace(DEFAULTS["dead_letters"], ignore=("ma*",))) == {}


def test_queues_of_alerts_and_hooks_raise_no_alert() -> None:
    now = {
        (queue, "any", state): 5_000
        for queue in ("limpet.alerts", "limpet.hooks")
        for state in (State.dead, State.ready)
    }
    views = tuple(QueueView(queue, {}, NOW - 86_400_000, None) for queue in ("limpet.alerts", "limpet.hooks"))
    seen = facts(Counts(now, 0, 0, 0, 0, 0, 0, views))
    assert {name for name, found in conditions(seen, AlertRules(), NOW).items() if found} == set()


def test_old_ready_jobs_are_told_unless_a_person_has_paused_the_queue() -> None:
    paused = Gate(GateRule("queue:pdf"), paused=Pause("ada", "", NOW))
    views = (
        QueueView("mail", {}, NOW - 20 * MINUTE, None),
        QueueView("pdf", {}, NOW - 20 * MINUTE, paused),
        QueueView("quick", {}, NOW - MINUTE, None),
        QueueView("empty", {}, None, None),
    )
    seen = facts(counts(queues=views))
    assert holding("oldest_ready", seen) == {"mail": "the oldest ready job of queue mail has waited 20m"}
    assert holding("oldest_ready", replace(seen, all_paused=True)) == {}


def test_a_depth_grows_when_it_is_larger_after_each_part_of_the_time() -> None:
    rule = DEFAULTS["depth_growing"]
    samples: tuple[Sample, ...] = ()
    said = []
    for step, depth in enumerate((500, 900, 1_400, 2_000, 2_600, 2_600)):
        at_ms = NOW + step * 5 * MINUTE
        seen = counts(mail_send_ready=depth, step_once_ready=5_000 if step > 1 else 0)
        samples = sampled(samples, seen, rule, at_ms)
        assert sampled(samples, seen, rule, at_ms + MINUTE) == samples
        found = conditions(facts(seen, samples=samples), AlertRules((rule,)), at_ms).get("depth_growing")
        said.append(None if found is None else [one.text for one in found])
    assert said == [
        [],
        [],
        [],
        ["queue mail has 2,000 ready jobs, and had 500 15m ago"],
        ["queue mail has 2,600 ready jobs, and had 900 15m ago"],
        [],
    ]
    assert holding("depth_growing", facts(seen, samples=samples)) is None
    grown = tuple(Sample(NOW - step, {"mail": 5_000 - step}) for step in (3, 2, 1, 0))
    mail = QueueView("mail", {}, None, None)
    assert holding("depth_growing", facts(counts(queues=(mail,)), samples=grown)) != {}
    held = replace(mail, gate=Gate(GateRule("queue:mail"), paused=Pause("ada", "", NOW)))
    assert holding("depth_growing", facts(counts(queues=(held,)), samples=grown)) == {}


def test_failures_and_durations_are_told_by_task() -> None:
    rates = (
        Rate("bad", "mail", 20, 0.5, 900.0),
        Rate("few", None, 19, 1.0, None),
        Rate("slow", "pdf", 100, 0.1, 31_000.0),
        Rate("idle", None, 0, None, None),
    )
    seen = facts(rates=rates)
    assert holding("failure_rate", seen) == {"bad": "50 % of 20 attempts of bad failed in the last minute"}
    assert holding("duration", seen) == {}
    slow = replace(DEFAULTS["duration"], each={"slow": 30_000.0})
    assert holding("duration", seen, slow) == {"slow": "slow ran for 31s (p95 of the last minute), and may take 30s"}


def test_tasks_that_no_live_worker_runs_are_told() -> None:
    worker = SessionView("w1", Serves(("mail",), ("send",)), b"{}", 0, 0, 0, True, 0)
    seen = counts(mail_send_ready=1, mail_new_ready=2, pdf_send_ready=1, pdf_later_scheduled=4)
    found = holding("no_worker", facts(seen, sessions=(worker,)))
    assert found == {
        "new": "2 jobs of new wait in queue mail, and no live worker runs it there",
        "send": "1 job of send waits in queue pdf, and no live worker runs it there",
    }


def test_breakers_budgets_schedules_and_the_engine() -> None:
    breakers = (
        Gate(GateRule("breaker:smtp"), open_until_ms=NOW + 1),
        Gate(GateRule("breaker:pay"), open_until_ms=FOREVER_MS),
        Gate(GateRule("breaker:fine")),
    )
    spent = Gate(GateRule("limit:usd/day:llm", unit="usd", cap=1_000_000, period="day"), spent=800_000, period_ms=NOW)
    low = replace(spent, rule=replace(spent.rule, key="limit:usd/day:low"), spent=799_999)
    seen = facts(
        breakers=breakers,
        budgets=(spent, low),
        late=(Late("nightly", 2 * MINUTE, "mail"), Late("new", MINUTE - 1, None)),
        findings=(Finding("ok", "fine", "all is well"), Finding("warning", "disk", "the disk is slow")),
    )
    assert holding("breaker_open", seen) == {
        "smtp": "breaker smtp is open until 2023-11-14T22:13:20.001Z",
        "pay": "breaker pay is open until it is reset",
    }
    assert holding("budget", seen) == {
        "usd/day:llm": "the budget 'llm' is at 80 %: $0.80 of $1 a day is spent or reserved"
    }
    assert holding("schedule_missed", seen) == {"nightly": "schedule nightly should have fired 2m ago, and did not"}
    assert holding("store", seen) == {"disk": "the disk is slow"}
    quick = facts()
    assert [holding(name, quick) for name in ("budget", "schedule_missed", "store")] == [None] * 3


# -- settings


def rules_of(**table: Any) -> AlertRules:
    found = parse_settings({"alerts": table}, "limpet.toml").alerts
    assert found is not None
    return found.published()


def test_without_settings_the_defaults_are_in_force_and_no_one_is_told() -> None:
    assert parse_settings({}, "limpet.toml").alerts is None
    assert rules_of() == AlertRules()
    assert read_rules([]) == read_rules([Control("alert", "rules", b"{")]) == AlertRules()
    kept = read_rules([rules_of(every="5s").control()])
    assert (kept.every_ms, kept.rules) == (5_000, AlertRules().rules)


def test_a_file_changes_rules_and_switches_them_off() -> None:
    rules = rules_of(
        rules={
            "no_worker": False,
            "oldest_ready": {"at_least": "5m", "each": {"bulk": "6h"}, "ignore": ["night-*"], "for": "2m"},
            "duration": {"each": {"pdf": 30}},
            "failure_rate": {"at_least": 0.2, "attempts": 100, "clear_after": 30},
        }
    )
    assert rules.of("no_worker") is None
    oldest = rules.of("oldest_ready")
    assert oldest == replace(
        DEFAULTS["oldest_ready"], at_least=300_000.0, each={"bulk": 21_600_000.0}, ignore=("night-*",), for_ms=120_000
    )
    assert [oldest.number_of(queue) for queue in ("mail", "bulk", "night-1")] == [300_000, 21_600_000, None]
    failing = rules.of("failure_rate")
    assert failing is not None
    assert (failing.at_least, failing.attempts, failing.clear_after_ms) == (0.2, 100, 30_000)
    assert read_rules([rules.control()]) == rules


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"evry": 5}, "did you mean 'every'?"),
        ({"every": "1ms"}, "every='1ms' is out of range"),
        ({"rules": {"dead_leters": True}}, "did you mean 'dead_letters'?"),
        ({"rules": {"dead_letters": {"at_lest": 1}}}, "did you mean 'at_least'?"),
        ({"rules": {"dead_letters": {"at_least": 0}}}, "at_least=0 is not a number above zero"),
        ({"rules": {"dead_letters": {"within": 5}}}, "dead_letters takes no within"),
        ({"rules": {"no_worker": {"at_least": 5}}}, "no_worker has no number"),
        ({"rules": {"failure_rate": {"at_least": 20}}}, "half of the attempts are 0.5"),
        ({"rules": {"budget": {"attempts": 20}}}, "budget takes no attempts"),
        ({"rules": {"failure_rate": {"attempts": 0}}}, "attempts=0 is not a count"),
        ({"rules": {"oldest_ready": {"at_least": "soon"}}}, "'soon' is not a duration"),
        ({"webhooks": {"pager": {}}}, "needs url or url_env"),
        ({"webhooks": {"pager": {"url": "https://h/", "url_env": "X"}}}, "needs url or url_env, and not both"),
        ({"webhooks": {"pager": {"ulr": "https://h/"}}}, "did you mean 'url'?"),
        ({"webhooks": {"pager": {"url": "ftp://h/s3cret"}}}, "url is not an address"),
        ({"webhooks": {"pager": {"url": "https://me:pw@h/"}}}, "url has a user name in it"),
        ({"webhooks": {"pager": {"url": "https://h/", "format": "teams"}}}, "teams"),
        ({"webhooks": {"pager": {"url": "https://h/", "rules": ["budgets"]}}}, "did you mean 'budget'?"),
        ({"webhooks": {"pager": {"url": "https://h/", "timeout": "5m"}}}, "at most 30s"),
        ({"webhooks": {"pager": {"url": "https://h/", "format": "slack", "secret": "x"}}}, "is not signed"),
        ({"webhooks": {"pager": {"url": "https://h/", "secret": "x", "secret_env": "X"}}}, "secret and secret_env"),
        ({"webhooks": {"a b": {"url": "https://h/"}}}, "the name of a webhook='a b' is not a name"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_settings({"alerts": table}, "limpet.toml")
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "pw" not in str(refused.value)


def test_addresses_and_secrets_are_not_in_what_is_published() -> None:
    table = parse_settings(
        {
            "alerts": {
                "webhooks": {
                    "pager": {"url": "https://h/s3cret", "secret_env": "KEY", "rules": ["budget"]},
                    "room": {"url_env": "ROOM", "format": "slack"},
                }
            }
        },
        "limpet.toml",
    ).alerts
    assert table is not None
    rules = table.published()
    assert rules.webhooks == (WebhookRef("pager", ("budget",)), WebhookRef("room"))
    assert b"s3cret" not in rules.control().value
    assert [ref.hears("store") for ref in rules.webhooks] == [False, True]
    assert [ref.hears("test") for ref in rules.webhooks] == [True, True]
    assert table.receivers({}) == {}
    found = table.receivers({"KEY": "k3y", "ROOM": "http://room/1"})
    assert found == {
        "pager": Webhook("pager", "https://h/s3cret", secret="k3y"),
        "room": Webhook("room", "http://room/1", "slack"),
    }
    assert repr(found["pager"]) == "<webhook pager at h>"


# -- what is told


NOTICE = Notice("firing", "dead_letters", "mail", "3 dead <jobs> & more", NOW, NOW, 3, "mail")


def test_a_request_is_signed_with_the_instant_and_has_the_key_of_its_job() -> None:
    key = NOTICE.job_id("pager")
    call = call_of(Webhook("pager", "https://h/", secret="k3y"), NOTICE, key, "shop", NOW)
    assert call.headers[TIMESTAMP] == str(NOW // 1000)
    assert call.headers[SIGNATURE] == signature("k3y", str(NOW // 1000), call.body)
    said = msgspec.json.decode(call.body)
    assert call.headers["Idempotency-Key"] == said["id"]
    assert (said["state"], said["rule"], said["subject"], said["queue"]) == ("firing", "dead_letters", "mail", "mail")
    assert (said["number"], said["measure"], said["namespace"], said["resolved_at"]) == (3, "jobs", "shop", None)
    assert said["fix"] == "limpet dead causes"
    later = call_of(Webhook("pager", "https://h/", secret="k3y"), NOTICE, key, "shop", NOW + 5_000)
    assert later.body == call.body
    assert later.headers[SIGNATURE] != call.headers[SIGNATURE]
    plain = call_of(Webhook("pager", "https://h/"), NOTICE, key, "shop", NOW)
    assert SIGNATURE not in plain.headers


def test_a_message_to_slack_has_no_links_and_no_mentions() -> None:
    call = call_of(Webhook("room", "https://h/", "slack"), NOTICE, NOTICE.job_id("room"), "shop", NOW)
    assert msgspec.json.decode(call.body) == {
        "text": ":red_circle: firing: 3 dead &lt;jobs&gt; &amp; more [shop]\nlimpet dead causes"
    }


def test_the_job_of_a_recovery_waits_for_that_of_its_alert() -> None:
    over = Alert("dead_letters", "mail", "", NOW, fired_ms=NOW + 5, told=True).notice("resolved", NOW + 9)
    first = Alert("dead_letters", "mail", "", NOW, fired_ms=NOW + 5).notice("firing", NOW + 5)
    assert over.before().job_id("pager") == first.job_id("pager") != over.job_id("pager")
    job = delivery_job(over, "pager", after=(first.job_id("pager"),))
    assert (job.lane.queue, job.lane.needs, job.if_parent_fails) == ("limpet.alerts", ("webhook:pager",), "run")
    assert first.job_id("room") != first.job_id("pager")


def test_a_book_that_cannot_be_read_is_begun_again_over_its_version() -> None:
    assert read_book([]) == KeptBook(Book(), 0)
    assert read_book([Control("alert", "book", b"{", 7)]) == KeptBook(Book(), 7)
    book = looked(Book(), (NOW, HOLDS), (NOW + MINUTE, HOLDS))[-1]
    assert read_book([replace(book.control(), version=3)]) == KeptBook(book, 3)
