"""Refuses keys that hold a secret: tenants, limits, tags and unique keys are shown in lists, without their jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from limpet.core.errors import InvalidArguments, InvalidTask
from limpet.core.jobs.job import Lane
from limpet.core.redaction.redaction import Hidden
from limpet.core.redaction.rule import Rule, Rules
from limpet.core.tasks.template import Template

_FIX: Final = "keys are shown in lists: make them of a name or an id that is no secret"


def refuse_templates(templates: Iterable[Template], rules: Iterable[Rule], label: str) -> None:
    """Refuse, at declaration, a key that is made of a hidden argument."""
    hidden = Rules(rules)
    for template in templates if hidden else ():
        for path in template.paths:
            if (rule := hidden.covers(("args", *path))) is not None:
                raise InvalidTask(
                    f"the key {template.text!r} of {label}() is made of {'.'.join(path)!r}, which {rule.text!r} hides",
                    fix=_FIX,
                )


def refuse_keys(
    hidden: Hidden, task: str, args: bytes, lane: Lane, *, unique: str | None = None, tags: Iterable[str] = ()
) -> None:
    """Refuse, at enqueue, a key that holds a hidden argument, where a function or the caller has made it."""
    keys = [("tenant", lane.tenant), ("unique key", unique), ("breaker", lane.breaker_key)]
    keys += [("limit", key) for key in lane.keys] + [("tag", tag) for tag in tags]
    said = [(what, key) for what, key in keys if key]
    secrets = hidden.arguments(args) if said else None
    for what, key in said:
        if secrets is not None and secrets.out_of(key) != key:
            raise InvalidArguments(f"the {what} of this job of {task!r} holds an argument that is hidden", fix=_FIX)
