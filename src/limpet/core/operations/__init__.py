"""Decides what an action on many jobs does next, and what of it is stored."""
