"""Purchases that wait without a thread: how shop/asgi.py sells.

lanes     threads for what has to block: the section under a lock, other strategies, the database
locked    AsyncRedisLock around that section
checkout  one purchase from the outside, as shop/sale/checkout.py, in an event loop
turnstile how many purchases begin at once
view      POST /buy, as shop/views.py, and the middleware around it
"""
