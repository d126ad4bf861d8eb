"""Costs of views: samples of tables, and the cost model over them."""
