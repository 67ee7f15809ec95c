"""`python -m contractor`: the command line."""

import sys

from contractor.cli import main

if __name__ == "__main__":
    sys.exit(main())
