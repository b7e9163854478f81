"""The static site: what a visitor sees without installing anything.

`make site` builds it from the documents and from `recorded/`; `make site ARGS=--record` records
again. README.md of `recorded/` says what each file there has.
"""

from __future__ import annotations
