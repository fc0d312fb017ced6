"""Turn logged runs into tables and a page: `python report.py --help`."""

import sys
from pathlib import Path

# Python looks here for `lra` alone: a project of the user's may have folders of the same names.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from lra.report.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
