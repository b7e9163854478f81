"""The strategy `reserve`: promises in Redis, whose orders are written later."""
