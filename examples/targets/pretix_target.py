"""t"""
from __future__ import annotations
from loadtest.target import Target
class PretixShop(Target):
    name = "pretix"
