"""Decides when a schedule fires: which instants are its ticks, and what becomes of those that were missed."""
