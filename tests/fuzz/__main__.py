"""The trials: ``python -m tests.fuzz``, or one of them, or one case of one target."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.trials import main

if __name__ == "__main__":
    sys.exit(main())
