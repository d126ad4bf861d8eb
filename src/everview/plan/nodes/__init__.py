"""The nodes of plans, one family a file."""

from everview.plan.nodes.aggregates import Aggregate, Call
from everview.plan.nodes.base import Constant, Node, node_of
from everview.plan.nodes.joins import Join
from everview.plan.nodes.members import Bound, ByMember, CellSum, FirstByMember, Matches
from everview.plan.nodes.orders import Order, Threshold, TopK, TopKByGroup
from everview.plan.nodes.rows import Filter, Generate, Project, Union
from everview.plan.nodes.sources import Refresh, Source
from everview.plan.nodes.touched import Recompute, Replace, Touched

__all__ = [
    "Aggregate",
    "Bound",
    "ByMember",
    "Call",
    "CellSum",
    "Constant",
    "Filter",
    "FirstByMember",
    "Generate",
    "Join",
    "Matches",
    "Node",
    "Order",
    "Project",
    "Recompute",
    "Refresh",
    "Replace",
    "Source",
    "Threshold",
    "TopK",
    "TopKByGroup",
    "Touched",
    "Union",
    "node_of",
]
