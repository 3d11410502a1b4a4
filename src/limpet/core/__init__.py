"""Pure decisions and records: nothing here waits, reads a clock, opens anything or logs."""
