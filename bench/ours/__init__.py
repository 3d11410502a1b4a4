"""Limpet's side of the bench: `python -m bench.ours MEASURE OPTIONS` prints one JSON object of figures."""
