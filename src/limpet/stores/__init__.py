"""Stores make changes true for everyone at once; they know what and when, never why."""
