"""Decides what people and programs see of stored things: one set of records for Python, the command line and HTTP."""
