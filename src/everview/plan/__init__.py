"""The plan of a view: nodes that say how it is maintained, stored as JSON."""
