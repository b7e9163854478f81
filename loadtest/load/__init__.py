"""Sustained sales: buyers who keep coming, at a rate or one after the other, for some seconds."""
