"""Asks for work: tasks, options, handles and the way of a job into the store; runs nothing itself."""
