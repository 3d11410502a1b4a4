"""What a task is: its declaration, its arguments, and how one call becomes a job."""
