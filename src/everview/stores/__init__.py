"""Stores: the contracts that all of them keep, and the embedded one."""
