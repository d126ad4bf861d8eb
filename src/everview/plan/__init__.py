"""The plan of a view: nodes that say how it is maintained, stored as JSON."""

from everview.plan.nodes import Aggregate, Call, Filter, Node, Project, Source

__all__ = ["Aggregate", "Call", "Filter", "Node", "Project", "Source"]
