"""`python -m app`: the same as the `tandem` command."""

import sys

from app.cli import main

sys.exit(main())
