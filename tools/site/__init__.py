"""The static site: what a visitor sees without installing anything.

`make site` builds it from the documents and from `recorded/`; README.md here says what each file
there has, and how it is recorded again.
"""
