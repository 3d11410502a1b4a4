"""Text for people: durations, events, and what every engine can keep."""
