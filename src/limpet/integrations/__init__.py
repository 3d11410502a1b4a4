"""Adapts libraries that users have anyway: each module imports its library, and is imported by its users alone."""
