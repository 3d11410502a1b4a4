"""Measures Limpet, and peers where they are installed, by one driver: `python -m bench` (or `make bench`)."""
