"""Lets Spark find the everview source by itself: it looks into modules named pyspark_*."""

from everview.run.source import EverviewDataSource as DefaultSource

__all__ = ["DefaultSource"]
