"""`python -m tdd`."""

import sys

from tdd.cli import main

sys.exit(main())
