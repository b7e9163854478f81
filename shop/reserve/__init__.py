"""The strategy `reserve`: promises in Redis, orders that are written later."""
