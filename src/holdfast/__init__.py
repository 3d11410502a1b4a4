"""Holdfast: a distributed task queue that never lets go of a job."""

__version__ = "0.1.0"
