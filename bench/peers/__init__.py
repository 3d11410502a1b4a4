"""Peers' sides of the bench, each run by its own environment: `PROGRAM MEASURE OPTIONS` prints its figures as JSON."""
