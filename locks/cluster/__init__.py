"""Locks on a cluster: where a slot is, and what the locks of one cluster client share."""
