"""`python -m hkvtool`."""

import sys

from hkvtool.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
