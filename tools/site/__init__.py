"""The static site: what a visitor sees without installing anything.

`make site` builds it from the documents and from the recordings in recorded/. The README.md of this
folder describes each file in recorded/, and how to record it again.
"""
