"""Program × sizes → Plan: what will be done and why."""
