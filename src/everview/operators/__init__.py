"""Operators turn a shard's delta and state into a delta: Arrow in, Arrow out, without Spark."""
