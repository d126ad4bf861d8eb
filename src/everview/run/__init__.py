"""What runs on Spark: the engines, and the everview source for reading tables and changes.

Everything here is plain PySpark that also exists in Spark Connect, so that one code serves Apache
Spark, a Spark cluster, Spark Connect and Sail.
"""
