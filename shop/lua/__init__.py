"""The shop's Lua scripts, each a file of its own here with its KEYS, ARGV and returns."""

from pathlib import Path

from locks.protocol import Script, script

FOLDER = Path(__file__).parent


def lua(name: str) -> Script:
    """The script in shop/lua/<name>.lua."""
    return script(name, FOLDER)
