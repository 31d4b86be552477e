"""`python -m sticky.cli`."""

import sys

from sticky.cli import main

if __name__ == "__main__":
    sys.exit(main())
