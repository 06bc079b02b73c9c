"""Life cycle of the daemon: paths, signals, readiness, logs, what this machine allows."""
