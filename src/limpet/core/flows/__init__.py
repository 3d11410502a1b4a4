"""Jobs that depend on others, and calls that a job remembers."""
