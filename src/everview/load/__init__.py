"""Files into tables: Parquet, CSV and JSON lines."""

from everview.load.files import load

__all__ = ["load"]
