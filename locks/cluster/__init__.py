"""The locks on a cluster: finding the node of a slot, and the resources of a cluster client."""
