"""The strategy `reserve`: Redis promises units to buyers, and the orders are written later.

A promise is a unit that Redis has taken off the stock of a sale for a buyer, who was answered
`sold`. To settle promises is to write their orders to PostgreSQL: `manage.py settle` does that.
"""
