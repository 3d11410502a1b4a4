"""Asks for work and about it: typed tasks, handles, bulk and by-name enqueue, and the bridge for sync code."""
