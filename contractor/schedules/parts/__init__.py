"""Pieces that the schedules share."""
