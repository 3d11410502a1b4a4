"""Public records: plain values in Python, one JSON object for everything that speaks JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from limpet import records
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView
from limpet.core.redaction.redaction import Shown
from limpet.records import Explanation, JobDetail, JobRecord, Progress, Reason, Record

ID = bytes.fromhex("019a000000007000800000000000000a")
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
AT_MS = 1_767_323_045_678
VIEW = Shown(
    id=ID,
    state=State.running,
    lane=Lane("mail", "send", needs=("eu",), tenant="acme"),
    policy=Policy(),
    args=b'{"to":{"name":"ada"}}',
    attempt=2,
    lost=1,
    enqueued_at_ms=AT_MS,
    due_at_ms=AT_MS,
    claimed_at_ms=AT_MS + 1_000,
    session="w1",
    token=7,
    reason="refused",
    error_type="ConnectionError",
    tags=("a", "b"),
    flow=ID,
    after=(ID,),
    notes=(Note("progress", "", b'{"done":3,"total":10,"message":"rows"}'), Note("checkpoint", "", b"[1]")),
)
ATTEMPT = AttemptView(1, "retried", AT_MS, AT_MS + 5, "w0", "transient", "ConnectionError", "refused")
ID_TEXT = "019a0000-0000-7000-8000-00000000000a"


def test_a_record_has_ids_as_text_and_instants_as_aware_datetimes() -> None:
    record = JobRecord.of(VIEW)
    assert (record.id, record.flow) == (ID_TEXT, ID_TEXT)
    assert (record.enqueued_at, record.started_at) == (AT, AT + timedelta(seconds=1))
    assert record.enqueued_at.tzinfo is UTC
    assert record.finished_at is None
    assert record.progress == Progress(3, 10, "rows")
    assert record.failure == "ConnectionError: refused"
    assert JobRecord.of(msgspec.structs.replace(VIEW, state=State.succeeded)).failure is None


def test_an_instant_that_never_comes_is_none() -> None:
    view = msgspec.structs.replace(VIEW, state=State.scheduled, due_at_ms=FOREVER_MS)
    assert JobRecord.of(view).due_at is None


def test_as_json_it_is_an_object_whose_instants_sort_as_text() -> None:
    whole = JobDetail.whole(VIEW, [ATTEMPT])
    shape = whole.to_dict()
    assert json.loads(json.dumps(shape)) == shape == dict(whole)
    assert (shape["state"], shape["enqueued_at"]) == ("running", "2026-01-02T03:04:05.678Z")
    assert shape["progress"] == {"done": 3, "total": 10, "message": "rows"}
    assert shape["history"][0]["started_at"] == "2026-01-02T03:04:05.678Z"
    assert (shape["tags"], shape["after"], shape["args"]) == (["a", "b"], [ID_TEXT], {"to": {"name": "ada"}})
    paris = timezone(timedelta(hours=1))
    on_the_second = Reason("due", "it is due", datetime(2026, 1, 2, 4, tzinfo=paris))
    assert on_the_second.to_dict()["until"] == "2026-01-02T03:00:00.000Z"


def test_the_whole_job_begins_with_its_line() -> None:
    line, whole = JobRecord.of(VIEW).to_dict(), JobDetail.whole(VIEW).to_dict()
    assert list(whole)[: len(line)] == list(line)
    assert {name: whole[name] for name in line} == line
    assert isinstance(JobDetail.whole(VIEW), JobRecord)


def test_arguments_that_are_no_json_are_shown_as_text() -> None:
    assert JobRecord.of(msgspec.structs.replace(VIEW, args=b"\xffoops")).args == {"undecodable": "�oops"}


def test_arguments_may_be_as_deep_as_json_is() -> None:
    deep = b"[" * 900 + b"]" * 900
    shape = JobRecord.of(msgspec.structs.replace(VIEW, args=deep)).to_dict()
    assert msgspec.json.encode(shape["args"]) == deep


def test_an_explanation_is_its_words_and_its_reasons() -> None:
    found = Explanation.of(VIEW, [Reason("due", "it is due", AT, {"n": 1})])
    assert str(found) == f"Job {ID_TEXT} (send, queue mail) is running: it is due."
    assert found.to_dict()["text"] == str(found)
    assert found.to_dict()["reasons"] == [
        {"code": "due", "text": "it is due", "until": "2026-01-02T03:04:05.678Z", "data": {"n": 1}}
    ]


def test_msgspec_encodes_a_record_and_reads_it_back() -> None:
    whole = JobDetail.whole(VIEW, [ATTEMPT])
    assert msgspec.json.decode(msgspec.json.encode(whole), type=JobDetail) == whole
    assert msgspec.convert(whole.to_dict(), JobDetail) == whole


class Page(BaseModel):
    """What an application's own view may answer."""

    job: JobRecord
    whole: JobDetail | None = None


def test_pydantic_takes_a_record_and_writes_its_json_object() -> None:
    record, whole = JobRecord.of(VIEW), JobDetail.whole(VIEW, [ATTEMPT])
    page = Page(job=record, whole=whole)
    assert page.job is record
    assert json.loads(page.model_dump_json()) == page.model_dump() == {"job": dict(record), "whole": dict(whole)}


def test_pydantic_reads_a_record_back_from_its_json() -> None:
    record, whole = JobRecord.of(VIEW), JobDetail.whole(VIEW, [ATTEMPT])
    assert Page.model_validate_json(Page(job=record, whole=whole).model_dump_json()) == Page(job=record, whole=whole)
    assert TypeAdapter(JobDetail).validate_python(whole.to_dict()) == whole
    with pytest.raises(ValidationError, match="enqueued_at"):
        TypeAdapter(JobRecord).validate_python({**record.to_dict(), "enqueued_at": "soon"})


def test_pydantic_describes_a_record_by_its_fields() -> None:
    schema = Page.model_json_schema(mode="serialization")
    job = schema["$defs"]["JobRecord"]
    assert schema["properties"]["job"] == {"$ref": "#/$defs/JobRecord"}
    assert job["properties"]["enqueued_at"] == {"format": "date-time", "title": "Enqueued At", "type": "string"}
    assert "ready" in schema["$defs"]["State"]["enum"]
    assert set(job["required"]) == set(JobRecord.__struct_fields__)


@pytest.mark.parametrize("name", records.__all__)
def test_every_record_can_be_the_type_of_a_view(name: str) -> None:
    kind: Any = getattr(records, name)
    assert issubclass(kind, Record)
    assert not hasattr(kind, "keys"), "dict() would take it for a mapping"
    for mode in ("validation", "serialization"):
        assert TypeAdapter(kind).json_schema(mode=mode)["type"] == "object"
