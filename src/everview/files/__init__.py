"""Files into tables: Parquet, CSV and JSON lines."""
