"""What a job is: its record, states, lease, keys, and what is shown of it."""
