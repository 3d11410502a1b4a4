"""What schemathesis is told of this API: loaded by its command, in the process that asks."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response

ANSWERED = os.environ["LIMPET_ANSWERED"]  # a file: the operations that were answered with success


@schemathesis.hook
def map_body(context: HookContext, body: Any) -> Any:
    """JSON Schema takes 7.0 for an integer, and the API does not: the one documented difference."""
    return whole(body)


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """A long poll would take as long as it asks for."""
    for asked in (case.query, case.body):
        if isinstance(asked, dict) and "wait" in asked and str(asked["wait"]).replace(".", "").isdigit():
            asked["wait"] = 0


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
    """Remember what succeeded."""
    if 200 <= response.status_code < 300:
        with open(ANSWERED, "a") as file:
            file.write(f"{case.method} {case.operation.path}\n")


@schemathesis.check
def what_the_document_allows_is_understood(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """A value may make no sense (422), but never because of its shape, if the document allows that."""
    if case.meta is not None and case.meta.generation.mode.is_positive and response.status_code == 422:
        assert b'"invalid_request"' not in response.content, response.content


def whole(value: Any) -> Any:
    """The same value; floats without a fraction become integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value
