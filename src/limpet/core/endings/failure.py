"""Decides what is kept of an exception for people, and which failures share a cause."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Final

from limpet.core.endings.transition import ErrorKind, Failure
from limpet.core.errors import UsageError
from limpet.core.text.storable import REASON_CHARS, spoken, storable

MESSAGE_CHARS: Final = REASON_CHARS
NAME_CHARS: Final = 300
TRACEBACK_BYTES: Final = 16 * 1024
FRAMES: Final = 60  # of each exception in the chain, the innermost ones

OWN: Final = str(Path(__file__).absolute().parents[2]) + os.sep  # the whole package
_STDLIB: Final = sysconfig.get_path("stdlib") + os.sep
_NOISE: Final = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "'…'"),
    (re.compile(r"\b(?:0x)?(?=[0-9a-fA-F-]*\d)[0-9a-fA-F][0-9a-fA-F-]{7,}\b"), "#"),
    (re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,:]\d+)*"), "#"),
)


def failure_of(error: BaseException, kind: ErrorKind) -> Failure:
    """The record of an exception: cut to size, safe to store, with the fingerprint of its cause."""
    name, message = type_name(error), message_of(error)
    told = "" if _is_said_in_full(error) else traceback_of(error)
    return Failure(kind, name, message, told, fingerprint(error, name, message))


def type_name(error: BaseException) -> str:
    """The qualified name; builtins and our own public ones without their module."""
    kind = type(error)
    module, name = spoken(kind.__module__), kind.__qualname__  # a class may say any thing is its module
    if module.startswith("limpet."):
        module = "limpet"
    return storable(name if module == "builtins" else f"{module}.{name}", NAME_CHARS)


def message_of(error: BaseException) -> str:
    """What the exception says, storable in every engine."""
    return storable(error, MESSAGE_CHARS)


def traceback_of(error: BaseException) -> str:
    """The formatted traceback without our own outer frames; the end is kept, since the error is there."""
    try:
        tb = _from_user_code(error.__traceback__)
        told = traceback.TracebackException(type(error), error, tb, limit=-FRAMES, compact=True)
        said = "".join(told.format())
        text = storable(said, len(said))
    except (
        Exception,
        SystemExit,
        GeneratorExit,
    ) as broken:  # a __str__ or a source file that cannot be read must not cost the outcome
        text = f"(the traceback could not be read: {type(broken).__qualname__})"
    raw = text.encode()
    if len(raw) <= TRACEBACK_BYTES:
        return text
    head = "… (cut)\n"
    kept = raw[-(TRACEBACK_BYTES - len(head.encode())) :].decode(errors="ignore")
    return head + kept.partition("\n")[2]


def _is_said_in_full(error: BaseException) -> bool:
    """True of our own refusals in which no code of the app had a part: their frames would say nothing about the job."""
    if not isinstance(error, UsageError):
        return False
    one: BaseException | None = error
    while one is not None:
        if any(not foreign(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(one.__traceback__)):
            return False
        one = one.__cause__ or one.__context__
    return error.__traceback__ is not None


def fingerprint(error: BaseException, name: str, message: str) -> str:
    """The same for failures of one origin: type, the user's innermost frame, and the message without its values."""
    return cause_of(name, *_place(error.__traceback__), message=message)


def cause_of(*where: str, message: str) -> str:
    """A fingerprint of a place and a message; numbers, ids and quoted parts of the message do not count."""
    text = message[:500]
    for pattern, sign in _NOISE:
        text = pattern.sub(sign, text)
    whole = "\0".join((*where, text)).encode(errors="backslashreplace")  # a file's name may be no proper text
    return blake2b(whole, digest_size=8).hexdigest()


def _place(tb: TracebackType | None) -> tuple[str, str]:
    found = ("", "")
    own = False
    while tb is not None:
        code = tb.tb_frame.f_code
        is_own = not foreign(code.co_filename)
        if is_own or not own:
            stem = os.path.splitext(os.path.basename(code.co_filename))[0]
            found, own = (stem, code.co_qualname), own or is_own
        tb = tb.tb_next
    return found


def foreign(file: str) -> bool:
    """Whether a file is not of the app: ours, Python's or an installed package's."""
    return file.startswith((OWN, _STDLIB, "<")) or "site-packages" in file or "dist-packages" in file


def _from_user_code(tb: TracebackType | None) -> TracebackType | None:
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith((OWN, _STDLIB)):
        first = first.tb_next
    return first or tb
