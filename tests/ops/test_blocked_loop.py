"""Operators see which task blocks the loop of a worker: in `workers`, `doctor` and `explain`."""

from __future__ import annotations

import msgspec
import pytest

from limpet.core.jobs.blocked_loop import FIELD, BlockedLoop, Blocker, Blocks
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.lease import Serves, SessionView
from limpet.ops.blocked_loop import LATELY_MS, blocked_findings, blocked_loop, loop_words

NOW_MS = 1_700_000_000_000
JOB = IdMaker().make(NOW_MS)


def session(name: str, info: object) -> SessionView:
    raw = info if isinstance(info, bytes) else msgspec.json.encode(info)
    return SessionView(name, Serves(), raw, 0, NOW_MS - 2_000, NOW_MS + 13_000, False, 0)


def loop(now: Blocker | None = None, **tasks: Blocks) -> dict[str, object]:
    return {"pid": 1, FIELD: BlockedLoop(now, {name.replace("_", "."): blocks for name, blocks in tasks.items()})}


BLOCKED = session("w1", loop(Blocker(3_000, "shop.charge", id_text(JOB))))
ONCE = Blocks(1, 1_200, NOW_MS - 60_000)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (session("w", {}), ""),
        (BLOCKED, "blocked for 5s by shop.charge"),
        (session("w", loop(Blocker(3_000))), "blocked for 5s by code of the app"),
        (session("w", {"silent_ms": 16_000}), "silent for 16s"),
        (
            session("w", loop(shop_charge=ONCE, shop_pay=Blocks(4, 2_000, NOW_MS))),
            "was blocked 5×, up to 2s (shop.pay)",
        ),
        (session("agent", b"whatever an agent says"), ""),
        (session("agent", {FIELD: "theirs"}), ""),
    ],
)
def test_a_column_says_how_the_loop_is(view: SessionView, words: str) -> None:
    assert loop_words(view, NOW_MS) == words


def test_doctor_names_each_task_once_with_what_to_do() -> None:
    old = Blocks(9, 9_000, NOW_MS - LATELY_MS)
    sessions = [
        BLOCKED,
        session("w2", loop(shop_pay=ONCE, shop_old=old)),
        session("w3", loop(shop_pay=Blocks(2, 4_000, NOW_MS))),
    ]
    now, lately = blocked_findings(sessions, NOW_MS)
    assert now.text == f"the loop of worker w1 is blocked for 5s by job {id_text(JOB)} of task shop.charge"
    assert lately.text.startswith("task shop.pay has blocked the loop of its worker 3 times, for up to 4s:")
    assert (now.level, lately.level) == ("warning", "warning")
    assert "asyncio.to_thread" in now.fix
    assert list(blocked_findings([session("w", {}), session("w", loop(shop_pay=ONCE))], NOW_MS + LATELY_MS)) == []


def test_what_a_worker_says_is_read_back() -> None:
    assert blocked_loop(session("w", loop(shop_pay=ONCE))) == BlockedLoop(None, {"shop.pay": ONCE})
