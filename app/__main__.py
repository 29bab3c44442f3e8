"""`python -m app`: the same as the `tandem` command."""

import sys

try:
    from app.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # while modules were still being imported
    sys.exit(130)
