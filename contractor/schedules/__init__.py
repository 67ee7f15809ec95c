"""One order of evaluation a file; the register of them stands in `register.py`."""
