"""What no face may show: the rules, and what they make of a job."""
