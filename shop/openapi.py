"""GET /openapi.json: what the shop answers over HTTP, as OpenAPI 3.1.

The contract of POST /buy, every status with its outcomes. What a demo allows is in a demo's
description alone. A 500 is not in it: an answer that nobody foresaw is an error of the shop.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from locks.lease import Release
from shop.api import LONGEST_PAGE
from shop.errors import (
    BadInput,
    Busy,
    CommitUnknown,
    Forbidden,
    Full,
    KeyReused,
    LengthRequired,
    Lost,
    SaleOver,
    ShopError,
    SoldOut,
    Throttled,
    Unavailable,
    UnknownProduct,
)
from shop.parameters import FORMS, JSON, LARGEST_ID, LARGEST_STOCK
from shop.reports import UnknownSale
from shop.strategies import STRATEGIES

Schema = dict[str, Any]

ANY: Schema = {"type": "object"}
FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}
TIME: Schema = {"type": "string", "format": "date-time"}
STOCK: Schema = {"type": "integer", "minimum": 0, "maximum": LARGEST_STOCK}
PRODUCT: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$", "default": "apple"}
BUYER: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
KEY: Schema = {"type": "string", "pattern": "^[!-~]{1,255}$"}


def object_of(required: Schema, optional: Schema | None = None) -> Schema:
    """An object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def text_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


LOCK = object_of(
    {"name": text_of(*STRATEGIES)},
    {
        "waited_ms": {"type": "number", "minimum": 0},
        "held_ms": {"type": "number", "minimum": 0},
        "fence": or_null(NUMBER),
        "released": text_of(*(release.value for release in Release)),
    },
)
SOLD = {"outcome": text_of("sold"), "order": NUMBER, "sale": NUMBER, "stock_seen": STOCK}
REPORT = object_of(
    {
        "sale": NUMBER,
        "product": PRODUCT,
        "open": FLAG,
        "initial_stock": STOCK,
        "orders": COUNT,
        "stock_left": STOCK,
        "buyers": or_null(COUNT),
        "oversold": COUNT,
        "undersold": or_null(COUNT),
        "lost_updates": {"type": "integer"},
        "settled": or_null(COUNT),
        "unsettled": or_null(COUNT),
        "broken_promises": or_null(COUNT),
        "settlement_lag_ms": or_null(object_of(dict.fromkeys(("p50", "p99", "max"), COUNT))),
    }
)
STRATEGY = object_of(
    {
        "name": text_of(*STRATEGIES),
        **dict.fromkeys(("title", "article", "summary", "file", "needs", "backend"), TEXT),
        "expected": {**ANY, "additionalProperties": TEXT},
        **dict.fromkeys(("sound", "renewed", "fenced", "takes_over"), FLAG),
        **dict.fromkeys(("reserves", "deferred", "available"), FLAG),
    }
)
ORDER = object_of(
    {
        "order": NUMBER,
        "buyer": TEXT,
        "key": or_null(KEY),
        "lock": text_of(*STRATEGIES),
        "fence": or_null(NUMBER),
        "stock_seen": STOCK,
        "product": TEXT,
        "amount": NUMBER,
        "time": TIME,
    }
)
PAGE = object_of({"sale": NUMBER, "orders": list_of(ORDER), "next": or_null(NUMBER)})
#: Seconds since the first order, and the stock that was seen.
SOLD_AT = {**list_of({"type": "number", "minimum": 0}), "minItems": 2, "maxItems": 2}
CURVE = object_of({"sale": NUMBER, "curve": list_of(SOLD_AT)})
PART = object_of({"name": TEXT, "ok": FLAG}, {"detail": TEXT})
READY = object_of({"status": TEXT}, {"parts": list_of(PART)})


def answer(schema: Schema, says: str) -> Schema:
    return {"description": says, "content": {JSON: {"schema": schema}}}


def answers(*errors: type[ShopError], **others: Schema) -> Schema:
    """Status -> what is answered: the errors, with every outcome that their status may have, and
    others, named as _201."""
    outcomes: dict[int, list[type[ShopError]]] = {}
    for error in errors:
        outcomes.setdefault(error.status, []).append(error)
    found = {name.lstrip("_"): response for name, response in others.items()}
    for status, kinds in outcomes.items():
        says = " ".join(kind.text for kind in kinds)
        outcome = text_of(*sorted({kind.outcome for kind in kinds}))
        body = object_of({"outcome": outcome, "error": TEXT}, {"allowed": list_of(TEXT)})
        found[str(status)] = answer(body, says)
        if status in (429, 503) and any(kind.outcome != "error" for kind in kinds):
            found[str(status)]["headers"] = {"Retry-After": {"required": True, "schema": NUMBER}}
    return found


def path_of(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def query_of(members: Schema) -> list[Schema]:
    return [{"name": name, "in": "query", "schema": schema} for name, schema in members.items()]


def body_of(schema: Schema) -> Schema:
    return {"content": {kind: {"schema": schema} for kind in (JSON, *FORMS)}}


def wish() -> Schema:
    """What POST /buy takes, in its body or in its query."""
    members = {"product": PRODUCT, "buyer": BUYER, "sale": NUMBER}
    if settings.SHOP_DEMO:
        hold = {"type": "integer", "minimum": 0, "maximum": settings.SHOP_LONGEST_HOLD_MS}
        return {**members, "lock": text_of(*STRATEGIES), "hold_ms": hold}
    return {**members, "lock": text_of(settings.SHOP_LOCK)}


def read(schema: Schema, *errors: type[ShopError], **more: Any) -> Schema:
    """A GET that answers 200 with this."""
    return {"get": {"responses": answers(*errors, _200=answer(schema, "OK")), **more}}


def description() -> Schema:
    """The OpenAPI document of this shop, as it is set."""
    key = {"name": "Idempotency-Key", "in": "header", "schema": KEY}
    sale = path_of("sale", {"type": "integer", "minimum": 0})
    buyers = {"buyers": STOCK}
    token: Schema = {"security": [{"token": []}]}
    sold = object_of({**SOLD, "replayed": {"const": False}, "lock": LOCK})
    again = object_of({**SOLD, "replayed": {"const": True}, "lock": LOCK})
    buy = {
        "summary": "Buy one unit. A key that has bought gets its order again.",
        "parameters": [*query_of(wish()), key],
        "requestBody": body_of(object_of({}, wish())),
        "responses": answers(
            *(BadInput, UnknownProduct, SoldOut, SaleOver, LengthRequired, KeyReused),
            *(Throttled, Full, Busy, Lost, Unavailable, CommitUnknown),
            _201=answer(sold, "Sold."),
            _200=answer(again, "This key has bought before: its order."),
        ),
    }
    restock = {
        "summary": "Open a new sale.",
        "requestBody": body_of(object_of({"stock": STOCK}, {"product": PRODUCT})),
        "responses": answers(
            *(BadInput, Forbidden, LengthRequired, Unavailable),
            _201=answer(REPORT, "The report of the new sale."),
        ),
        **token,
    }
    page = {"after": {**NUMBER, "minimum": 0}, "limit": {**NUMBER, "maximum": LONGEST_PAGE}}
    of_sale = (BadInput, UnknownSale, Unavailable)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Oversold", "version": "1"},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/buy": {"post": buy},
            "/restock": {"post": restock},
            "/strategies": read(object_of({"strategies": list_of(STRATEGY)})),
            "/sales/latest": read(
                REPORT, *of_sale, parameters=query_of({"product": PRODUCT, **buyers})
            ),
            "/sales/{sale}": read(REPORT, *of_sale, parameters=[sale, *query_of(buyers)]),
            "/sales/{sale}/orders": read(
                PAGE, *of_sale, Forbidden, parameters=[sale, *query_of(page)], **token
            ),
            "/sales/{sale}/curve": read(CURVE, *of_sale, parameters=[sale]),
            "/healthz": read(object_of({"status": text_of("ok")})),
            "/readyz": {
                "get": {
                    "responses": {
                        "200": answer(READY, "Everything that a sale needs answers."),
                        "503": answer(READY, "Something does not, or the node is about to stop."),
                    }
                }
            },
            "/openapi.json": read(ANY),
        },
    }
