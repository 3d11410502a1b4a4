"""Suggestions: a slip of the keys finds the word that was meant, and another word finds none."""

from __future__ import annotations

from difflib import get_close_matches

import pytest

from limpet.core.jobs.options import CALL_OPTIONS
from limpet.core.tasks.declare import TASK_OPTIONS
from limpet.core.tasks.naming import did_you_mean, nearest

COMMANDS = [
    *("worker", "enqueue", "agent", "outbox", "demo", "jobs", "job", "explain", "queues", "flows", "workers", "stats"),
    *("events", "audit", "classify", "doctor", "cancel", "retry", "rerun", "dead", "approvals", "signal", "pause"),
    *("resume", "drain", "limits", "breakers", "schedules", "migrate", "config", "completion", "retention", "weights"),
]
FIELDS = ["state", "id", "queue", "task", "tenant", "tag", "error", "cause", "unique", "flow", "priority", "attempt"]
NAMES = [
    "email.send",
    "email.digest",
    "shop.reports.render",
    "invoice_pdf",
    "Europe/Paris",
    "America/New_York",
    "default",
]
OPTIONS = sorted(TASK_OPTIONS | CALL_OPTIONS)
WORDS = [COMMANDS, FIELDS, NAMES, OPTIONS]

SLIPS = [
    *(("jbos", "jobs"), ("wroker", "worker"), ("workr", "worker"), ("enqueu", "enqueue"), ("enqeue", "enqueue")),
    *(("queus", "queues"), ("stast", "stats"), ("doctr", "doctor"), ("dcotor", "doctor"), ("retyr", "retry")),
    *(("cancle", "cancel"), ("canel", "cancel"), ("deda", "dead"), ("paues", "pause"), ("resme", "resume")),
    *(("scedules", "schedules"), ("schedlues", "schedules"), ("beakers", "breakers"), ("limts", "limits")),
    *(
        ("migarte", "migrate"),
        ("confg", "config"),
        ("complection", "completion"),
        ("JOBS", "jobs"),
        ("exlain", "explain"),
    ),
    *(
        ("stat", "state"),
        ("queu", "queue"),
        ("taks", "task"),
        ("teant", "tenant"),
        ("eror", "error"),
        ("prioirty", "priority"),
    ),
    *(("unqiue", "unique"), ("atempt", "attempt"), ("prio", "priority"), ("casue", "cause")),
    *(("email.snd", "email.send"), ("emial.send", "email.send"), ("email-send", "email.send")),
    *(("shop.report.render", "shop.reports.render"), ("invoice-pdf", "invoice_pdf"), ("invoce_pdf", "invoice_pdf")),
    *(
        ("Paris", "Europe/Paris"),
        ("New_York", "America/New_York"),
        ("render", "shop.reports.render"),
        ("defualt", "default"),
    ),
    *(("max_payload_byte", "max_payload_bytes"), ("hardtimeout", "hard_timeout"), ("on_duplicat", "on_duplicate")),
    *(
        ("if_parents_fail", "if_parent_fails"),
        ("tiemout", "timeout"),
        ("breaker_", "breaker"),
        ("exipres_in", "expires_in"),
    ),
]
OTHERS = [
    *(
        "tops",
        "top",
        "beat",
        "purge",
        "flower",
        "shell",
        "status_page",
        "login",
        "ps",
        "ls",
        "help",
        "server",
        "monitor",
    ),
    *("agents_of", "load", "kill", "order", "event_loop", "build", "deploy", "amount", "customer", "colour"),
    *("newsletter", "sms", "backup", "resize", "refund", "import", "export", "x", "a", "of", "quiet", "rate_limit"),
    *("acks_late", "bind", "serializer", "countdown", "ignore_result", "autoretry_for", "track_started"),
]


def known(meant: str) -> list[str]:
    return next(words for words in WORDS if meant in words)


@pytest.mark.parametrize(("typed", "meant"), SLIPS)
def test_a_slip_finds_the_word_that_was_meant(typed: str, meant: str) -> None:
    assert nearest(typed, known(meant)) == meant


def test_another_word_finds_none() -> None:
    found = {(word, near) for word in OTHERS for words in WORDS if (near := nearest(word, words))}
    assert found == set()


def test_the_rule_is_better_than_the_common_one() -> None:
    """The standard library's measure, at its usual cutoff, takes many other words for slips."""

    def usual(word: str, words: list[str]) -> list[str]:
        return get_close_matches(word, words, n=1)

    wrong = [word for word in OTHERS if any(usual(word, words) for words in WORDS)]
    missed = [typed for typed, meant in SLIPS if usual(typed, known(meant)) != [meant]]
    assert len(wrong) > 15
    assert len(missed) > 1


def test_what_is_not_near_is_answered_with_all_there_are() -> None:
    assert did_you_mean("mial", ["mail", "exports"]) == "did you mean 'mail'?"
    assert did_you_mean("zebra", ["mail", "exports"]) == "known: exports, mail"
    assert did_you_mean("zebra", [f"n{n}" for n in range(40)]).endswith("and 10 more")
    assert did_you_mean("zebra", []) == "there are none"


def test_a_part_that_several_have_finds_none() -> None:
    assert nearest("email", NAMES) is None
    assert nearest("send", ["email.send", "sms.send"]) is None
    assert nearest("send", ["email.send", "resend"]) == "email.send"
