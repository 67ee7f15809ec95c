"""Spec → Program: what is meant, by definition."""
