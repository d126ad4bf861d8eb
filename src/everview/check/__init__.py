"""Checking that views are what they should be."""
