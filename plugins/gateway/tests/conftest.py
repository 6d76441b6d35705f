"""Makes template_kit.py importable from the tests in the folders below."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
