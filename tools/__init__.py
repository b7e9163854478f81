"""What looks after the repository itself: its lock files, their audit, its bill of materials.

Runs in .venv-tools, by make. The shop and the tests need nothing that is installed there.
"""

from __future__ import annotations
