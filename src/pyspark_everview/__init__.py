"""Lets Spark find the everview source by itself: it looks into modules named pyspark_*."""

from everview.spark.source import EverviewDataSource as DefaultSource

__all__ = ["DefaultSource"]
