"""Kernel → text: Triton and torch, one statement a line."""
