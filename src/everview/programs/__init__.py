"""Plans as jobs of an engine, and the workers that run operators in it."""
