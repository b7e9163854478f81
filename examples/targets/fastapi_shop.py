"""A small shop that oversells: it reads the stock, and writes it back less one.

`WHERE stock > 0` looks like a guard. But the new stock is computed from the stock that was read,
and other buyers may have changed that since. The repair is one line: let the database compute the
new stock.
"""

import os
import sqlite3
from contextlib import closing

from fastapi import FastAPI, HTTPException

TABLES = """
CREATE TABLE IF NOT EXISTS product (stock INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, buyer TEXT NOT NULL);
"""
app = FastAPI()


def connect() -> closing[sqlite3.Connection]:
    """Return a connection that `with` closes, and on which each statement commits by itself."""
    return closing(sqlite3.connect(os.environ["SHOP"], timeout=30, isolation_level=None))


@app.post("/restock/{stock}")
def restock(stock: int) -> None:
    """Create the tables if they are missing, and put this many units of the product on sale."""
    with connect() as database:
        database.executescript(f"PRAGMA journal_mode = WAL; {TABLES} DELETE FROM product")
        database.execute("INSERT INTO product VALUES (?)", [stock])


@app.post("/buy", status_code=201)
def buy(buyer: str) -> dict[str, int | None]:
    """Sell a unit. FLAW: the new stock is computed from a stock that may have changed since."""
    with connect() as database:
        (stock,) = database.execute("SELECT stock FROM product").fetchone()
        sold = database.execute("UPDATE product SET stock = ? WHERE stock > 0", [stock - 1])
        if not sold.rowcount:
            raise HTTPException(409, "sold out")
        order = database.execute("INSERT INTO orders (buyer) VALUES (?)", [buyer])
        return {"order": order.lastrowid}


@app.get("/report")
def report() -> dict[str, object]:
    """Return all orders and the stock that is left."""
    with connect() as database:
        orders = database.execute("SELECT id, buyer FROM orders").fetchall()
        (stock,) = database.execute("SELECT stock FROM product").fetchone()
        return {"orders": orders, "stock": stock}
