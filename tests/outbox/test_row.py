"""The form of a row is kept: a relay reads what an older release wrote, and nobody changes it without noticing."""

from __future__ import annotations

from typing import Final

import pytest

from limpet.core.errors import SchemaOutdated
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Job, Lane, Policy, Unique
from limpet.core.jobs.state import State
from limpet.outbox.row import MAGIC, VERSION, Letter, Row, Unreadable, pack, unpack

ID: Final = id_bytes("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b")
JOB: Final = Job(
    id=ID,
    lane=Lane("mail", "send", 3, "acme", ("gpu",), ("smtp",), ("customer:7",), "smtp", "post", "smtp:7"),
    policy=Policy(attempts=3, delays_ms=(1, 2), timeout_ms=None),
    args=b'{"to":"a"}',
    delay_ms=5,
    due_at_ms=6,
    expires_ms=7,
    unique=Unique("k", 60_000, frozenset({State.ready}), "replace"),
    after=(ID,),
    if_parent_fails="run",
    cost=2,
    tags=("eu",),
    meta=b'{"trace":"1"}',
    flow=ID,
    costs={"usd": 3},
)
RULES: Final = (
    GateRule("limit:smtp", 2, 1_000, 3, None, True, "usd", 100, 5_000),
    GateRule("limit:customer:7", unit="usd", cap=5, period="day"),
    GateRule("breaker:smtp", breaker=BreakerRule(1, 2, 3)),
)
# This job in form 1. A change of Job, Lane, Policy, Unique or GateRule that this cannot be read into, or that an older
# relay would leave out, needs a new VERSION.
WRITTEN: Final = bytes.fromhex(
    "4c500182a36a6f628fa26964c4100190a5b27c3d7e8f9a0b1c2d3e4f5a6ba46c616e658aa57175657565a46d61696ca47461736ba47365"
    "6e64a87072696f7269747903a674656e616e74a461636d65a56e6565647391a3677075a66c696d69747391a4736d7470a46b65797391aa"
    "637573746f6d65723a37a7627265616b6572a4736d7470a573636f7065a4706f7374ab627265616b65725f6b6579a6736d74703a37a670"
    "6f6c6963798ca8617474656d70747303a7626173655f6d73cd03e8a6666163746f72cb4010000000000000a66361705f6d73ce000493e0"
    "a66a6974746572a466756c6ca964656c6179735f6d73920102aa74696d656f75745f6d73c0af686172645f74696d656f75745f6d73ce00"
    "1b9e50a86d61785f6c6f73740aa86d61785f68656c6464ab6d61785f68656c645f6d73ce05265c00b06d61785f726573756c745f627974"
    "6573ce00040000a461726773c40a7b22746f223a2261227da864656c61795f6d7305a96475655f61745f6d7306aa657870697265735f6d"
    "7307a6756e6971756584a36b6579a16ba6666f725f6d73cdea60a673746174657391a57265616479ac6f6e5f6475706c6963617465a772"
    "65706c616365a5616674657291c4100190a5b27c3d7e8f9a0b1c2d3e4f5a6baf69665f706172656e745f6661696c73a372756ea4636f73"
    "7402a47461677391a26575a46d657461c40d7b227472616365223a2231227da4666c6f77c4100190a5b27c3d7e8f9a0b1c2d3e4f5a6ba5"
    "636f73747381a375736403a572756c6573938da36b6579aa6c696d69743a736d7470ab636f6e63757272656e637902ab696e7465727661"
    "6c5f7573cd03e8a5627572737403a7627265616b6572c0af64656661756c745f666f725f343239c3a4756e6974a3757364a5666c6f6f72"
    "64a8636c696d625f6d73cd1388a3636170c0a6706572696f64c0a56465707468c0ac74656e616e745f6465707468c08da36b6579b06c69"
    "6d69743a637573746f6d65723a37ab636f6e63757272656e6379c0ab696e74657276616c5f7573c0a5627572737401a7627265616b6572"
    "c0af64656661756c745f666f725f343239c2a4756e6974a3757364a5666c6f6f72c0a8636c696d625f6d73cdea60a363617005a6706572"
    "696f64a3646179a56465707468c0ac74656e616e745f6465707468c08da36b6579ac627265616b65723a736d7470ab636f6e6375727265"
    "6e6379c0ab696e74657276616c5f7573c0a5627572737401a7627265616b657286a86661696c7572657301a977697468696e5f6d7302ab"
    "636f6f6c646f776e5f6d7303ae70726f62655f61667465725f6d73cdea60a472617465c0a96d696e5f63616c6c7314af64656661756c74"
    "5f666f725f343239c2a4756e6974a0a5666c6f6f72c0a8636c696d625f6d73cdea60a3636170c0a6706572696f64c0a56465707468c0ac"
    "74656e616e745f6465707468c0"
)


def row(body: bytes, age_ms: int = 0) -> Row:
    return Row(1, "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", "mail", "send", body, age_ms)


def test_what_was_written_is_read_back() -> None:
    assert unpack(row(pack(JOB, RULES))) == Letter(JOB, RULES)


def test_what_form_1_says_is_read_today() -> None:
    assert unpack(row(WRITTEN)) == Letter(JOB, RULES)


def test_what_is_written_today_is_form_1() -> None:
    written = pack(JOB, RULES)
    assert (written[:3], len(written)) == (WRITTEN[:3], len(WRITTEN))  # the order of a set's members may differ


def test_rules_of_other_jobs_are_left_out() -> None:
    assert unpack(row(pack(JOB, (*RULES, GateRule("limit:other", 1))))).rules == RULES


@pytest.mark.parametrize(
    "body", [b"", b"H", MAGIC, b"XX" + WRITTEN[2:], WRITTEN[:-1], MAGIC + bytes([VERSION]) + b"\x90"]
)
def test_what_no_release_wrote_is_no_job(body: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack(row(body))


def test_what_a_newer_release_wrote_asks_for_an_upgrade() -> None:
    with pytest.raises(SchemaOutdated, match="upgrade limpet where the relay runs"):
        unpack(row(MAGIC + bytes([VERSION + 1]) + b"anything"))


@pytest.mark.parametrize(
    ("age_ms", "delay_ms", "expires_ms"), [(-50, 5, 7), (0, 5, 7), (4, 1, 3), (6, 0, 1), (1_000_000, 0, 0)]
)
def test_what_has_passed_is_taken_off(age_ms: int, delay_ms: int, expires_ms: int) -> None:
    job = unpack(row(WRITTEN, age_ms)).job
    assert (job.delay_ms, job.expires_ms) == (delay_ms, expires_ms)
