"""Asks the system how a process is: whether it is stopped, the processor time it has used, its memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Final

from msgspec import Struct

PS_S: Final = 5.0  # how long the answer of `ps` may take


class ProcessState(Struct, frozen=True):
    """What the system says of a process."""

    state: str  # one letter, as `ps` shows it: R runs, S sleeps, D waits for a disk, T is stopped
    cpu_s: float  # that it has used, in all its threads

    @property
    def stopped(self) -> bool:
        """True when it was stopped by a signal; one that is being debugged is not."""
        return self.state == "T"


def process_state(pid: int) -> ProcessState | None:
    """How that process is; None when the system does not say. From /proc, else from `ps`; may take a moment."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return _from_proc(file.read())
    except OSError:
        return _from_ps(pid)


def _from_proc(line: bytes) -> ProcessState:
    words = line[line.rindex(b")") + 1 :].split()  # its name comes first, and may hold anything
    ticks = int(words[11]) + int(words[12])
    return ProcessState(words[0].decode(), ticks / os.sysconf("SC_CLK_TCK"))


def _from_ps(pid: int) -> ProcessState | None:
    try:
        said = subprocess.run(
            ["ps", "-o", "state=", "-o", "time=", "-p", str(pid)], capture_output=True, timeout=PS_S, check=True
        )
        state, time = said.stdout.decode().split()
        return ProcessState(state[0], _seconds(time))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _seconds(time: str) -> float:
    """From [[days-]hours:]minutes:seconds, with or without a fraction."""
    days, _, clock = time.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86_400 * int(days or 0)


def resident_bytes() -> int:
    """Resident memory of this process; where only the peak is known, the peak."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
