"""What limits, budgets and rates mean, and how they are written and counted."""
