"""Text → Spec: what was written, and where."""
