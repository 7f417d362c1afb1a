"""Makes `reading` (this folder) and `docs` and `docparts` (scripts) importable by their names."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parent)]
