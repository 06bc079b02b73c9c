"""The session store: window log, roll-ups, and the worker process that owns them."""
