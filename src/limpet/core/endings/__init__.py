"""How an attempt ends: what happened, what it means, and what changes for the job."""
