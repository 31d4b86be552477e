"""`python -m sticky.cli`."""

import sys

from sticky.cli.main import main

sys.exit(main())
