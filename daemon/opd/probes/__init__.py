"""Active measurements: each in a process of its own, kept with the machine's state."""
