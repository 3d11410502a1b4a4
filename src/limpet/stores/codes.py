"""Names the small numbers that engines store: the bits of a job's flags, and counters beyond the seven states."""

from __future__ import annotations

# Bits of a job's flags.
KIDS, WATCHED, CANCELLING, NOTES, INPUTS, BY_PARENT, SETTLED = 1, 2, 4, 8, 16, 32, 64

# Counters beyond the seven states: sums that only grow.
ENQUEUED, EVER_SUCCEEDED, EVER_CANCELLED, DISCARDED, EVER_LOST, STALE = 10, 11, 12, 13, 14, 15
