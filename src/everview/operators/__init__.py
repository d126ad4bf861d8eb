"""Operators: from a shard's delta and state to a delta; Arrow in, Arrow out, without Spark."""
