"""The shop's Lua scripts, each a file of its own here with its KEYS, ARGV and returns."""

from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from locks.protocol import Script, script

FOLDER = Path(__file__).parent


class Lua(Script):
    """A script that one calls."""

    def __call__(self, client: Any, keys: list[str], args: list[str | int]) -> Any:
        """Run it with one EVALSHA; a server that has not seen it yet gets the text (EVAL)."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)


def lua(name: str) -> Lua:
    """The script in shop/lua/<name>.lua."""
    return Lua(*script(name, FOLDER))
