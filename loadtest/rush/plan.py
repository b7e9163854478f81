"""The plan of one rush, which the command line describes."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RushPlan:
    """The plan of one rush. Processes send it to each other as the dict of dataclasses.asdict().

    Raises ValueError if there is no address or no buyer. The bounds of the other fields are checked
    by the parsers of the options, and by the shop.

    hosts          the addresses of the shop; the first buyer uses the first, and so on in turn
    buyers         the number of buyers
    stock          the units with which the sale is opened
    deadline       seconds from the release of the buyers until they stop repeating requests
    lock           the strategy that guards the stock; only for this project's shop
    hold_ms        milliseconds between check and decrement; only for this project's shop
    product        the product that the buyers buy; only for this project's shop
    target         the file that describes a third-party shop; empty: this project's shop
    i_may_load     the host name of another machine against which the user allows a rush
    restock_token  the shop's SHOP_RESTOCK_TOKEN; it is not sent to the buyers
    judge          whether the process that opens the sale judges the rush; otherwise it returns a
                   BuyersReport, and the caller judges it together with the nodes' records
    history        the file to which the buyers' requests are appended; empty: none
    result         the file to which the run is written; empty: none
    locust_report  the file of Locust's own report; empty: none
    """

    hosts: Sequence[str]
    buyers: int = 200
    stock: int = 100
    deadline: float = 60.0
    lock: str = "none"
    hold_ms: int = 0
    product: str = "apple"
    target: str = ""
    i_may_load: str = ""
    restock_token: str = field(default="", repr=False)
    judge: bool = True
    history: str = ""
    result: str = ""
    locust_report: str = ""

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("hosts is empty: give the address of a shop")
        if self.buyers < 1:
            raise ValueError(f"buyers must be at least 1, not {self.buyers}")
