"""Epochs, loads and the life of views."""
