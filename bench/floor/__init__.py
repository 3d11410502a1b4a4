"""The floor of the bench: what the mechanism beneath an engine takes alone, by `python -m bench.floor MEASURE OPTIONS`.

The same processes, event loops, client libraries and pauses as in ours, and no task queue in between.
"""
