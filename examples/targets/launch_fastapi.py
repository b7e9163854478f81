"""How fastapi_shop.py is installed and started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from examples.targets.shop import HERE, ExampleShop, NotInstalled

WRONG = 'sold = shop.execute("UPDATE product SET stock = ? WHERE stock > 0", [stock - 1])'
RIGHT = 'sold = shop.execute("UPDATE product SET stock = stock - 1 WHERE stock > 0")'


@dataclass(frozen=True)
class FastApi(ExampleShop):
    def prepare(self, *, repaired: bool) -> Mapping[str, str]:
        """A copy of its source, repaired or not, and a new database."""
        source = (HERE / "fastapi_shop.py").read_text()
        if source.count(WRONG) != 1:
            raise NotInstalled(
                "fastapi_shop.py has no line to repair any more: see launch_fastapi.py"
            )
        copy = source.replace(WRONG, RIGHT) if repaired else source
        (self.folder / "fastapi_shop.py").write_text(copy)
        for file in self.folder.glob("shop.sqlite3*"):
            file.unlink()
        return {"SHOP": str(self.folder / "shop.sqlite3")}

    def command(self, port: int) -> list[str]:
        serve = ["-m", "uvicorn", "fastapi_shop:app", "--workers", "2", "--log-level", "warning"]
        return [str(self.python), *serve, "--host", "127.0.0.1", "--port", str(port)]


SHOP = FastApi(
    name="fastapi",
    needs=("fastapi~=0.165.0", "uvicorn~=0.54.0"),
    target="fastapi_target.py",
    page="/openapi.json",
)
