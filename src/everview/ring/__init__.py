"""Slots of state, and which task takes which of them."""
