"""More buyers than units at once, over HTTP."""

import json
import secrets
import threading

from servers.tests.polling import eventually
from shop.tests.node import Node

UNITS, BUYERS = 5, 12


def rush(node: Node, lock: str) -> tuple[int, int]:
    """Orders and stock left after the rush. A buyer answered `busy` asks again; everybody
    else was answered `sold` or `sold_out`, and nobody `sold` without an order."""
    sale = node.restock(UNITS, lock)
    barrier = threading.Barrier(BUYERS)
    outcomes: list[str] = []

    def buy(number: int) -> None:
        barrier.wait(10)
        body = json.dumps({"lock": lock, "buyer": f"b{number}"}).encode()
        key = {"Idempotency-Key": secrets.token_hex()}
        while (outcome := node.ask("POST", "/buy", body, key)[1]["outcome"]) == "busy":
            pass
        outcomes.append(outcome)

    buyers = [threading.Thread(target=buy, args=(number,)) for number in range(BUYERS)]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(30)
    eventually(
        lambda: node.get(f"/sales/{sale}")[1]["unsettled"] in (0, None), what="it is settled"
    )
    report = node.get(f"/sales/{sale}")[1]
    assert len(outcomes) == BUYERS, lock
    assert set(outcomes) <= {"sold", "sold_out"}, lock
    assert outcomes.count("sold") == report["orders"], lock
    return report["orders"], report["stock_left"]
