"""Source → something to call."""
