"""The pages are read with `reading`, and written by scripts/docs.py; both are imported by their names."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parent)]
