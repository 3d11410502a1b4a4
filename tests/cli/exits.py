"""A script that was written to be run, and ends whoever imports it."""

raise SystemExit(3)
