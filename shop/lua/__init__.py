"""The shop's Lua scripts, one per file. Each file documents its KEYS, ARGV and reply."""

from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from locks.sans_io.protocol import Script, load_script

FOLDER = Path(__file__).parent


class CallableScript(Script):
    """A Lua script that is called with a client of Redis, the KEYS and the ARGV."""

    def __call__(self, client: Any, keys: list[str], args: list[str | int]) -> Any:
        """Run the script with EVALSHA, or with EVAL if the server does not know the script yet."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)


def lua_script(name: str) -> CallableScript:
    """Return the script in shop/lua/<name>.lua."""
    text, sha = load_script(name, FOLDER)
    return CallableScript(text, sha)
