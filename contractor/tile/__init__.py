"""The tile language: what a kernel does, in named axes. A language, never a compiler."""
