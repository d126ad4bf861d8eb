"""The cost to maintain a plan: the sum over its operators of rows, state reads and state writes,
each times the seconds for one on this machine.

That is the form of the dissertation's section 5.2: for each operator, c_send for rows that come to
it, c_get and c_mget for reads of its state, c_up for writes. An epoch, and each operator in it,
also takes some time however few the changes are. `everview calibrate` measures these constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from everview.plan.estimates import Estimates
from everview.plan.flows import Flows, flows_by_table
from everview.plan.nodes import Node, Source
from everview.plan.sizes import Flow
from everview.plan.states import Size, state_of, view_rows

PER = 1_000  # changes
VIEW = "view"
Document = dict[str, Any]


@dataclass(frozen=True)
class Constants:
    """Seconds. In an epoch: for itself, for each operator, for each row that is sent to an operator
    or read from a log, and in operators for each row, each read of state and each write. In a load:
    for itself, for each operator, for each row that is read or sent, for each item of state.

    `measured` is the day of the calibration; None if there was none on this machine.
    """

    epoch: float
    operator: float
    send: float
    row: float
    read: float
    write: float
    load: float
    load_operator: float
    load_row: float
    append: float
    measured: str | None = None

    def of_flow(self, flow: Flow) -> float:
        """The seconds of an operator in an epoch."""
        sent = flow.rows_in * (self.send + self.row)
        return sent + flow.reads * self.read + flow.writes * self.write

    def to_json(self) -> Document:
        return asdict(self)


DEFAULTS = {
    "spark": Constants(
        epoch=0.07,
        operator=0.04,
        send=1.2e-6,
        row=2e-7,
        read=1.3e-6,
        write=3.8e-6,
        load=0.7,
        load_operator=0.3,
        load_row=1e-6,
        append=5e-6,
    ),
    "sail": Constants(
        epoch=0.01,
        operator=0.022,
        send=1.8e-6,
        row=4.7e-7,
        read=1.4e-6,
        write=2.3e-6,
        load=0.02,
        load_operator=0.04,
        load_row=1.3e-6,
        append=2.9e-6,
    ),
}


@dataclass(frozen=True)
class Rates:
    """The share of each table in all changes, over so many epochs; without epochs, by the tables'
    rows."""

    shares: Mapping[str, float]
    epochs: int


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan and of its view's own rows, by the identity of operators and VIEW."""

    sizes: Mapping[str, Size]
    flows: Mapping[str, Mapping[str, Flow]]  # by table, then by operator: of PER changes
    rows: Mapping[str, float]  # in the outputs of operators
    tables: Mapping[str, int]
    sources: float  # rows that sources read
    load_rows: float  # that come to operators when the plan is loaded


def cost_of(
    plan: Node,
    key: tuple[str, ...],
    estimates: Estimates,
    rows_of_change: Mapping[str, float],
    shards: int,
) -> PlanCost:
    operators = {node.identity: node for node in plan.walk() if node.is_operator}
    sizes = {name: state_of(node, estimates, shards) for name, node in operators.items()}
    sizes[VIEW] = view_rows(plan, key, estimates)
    flows = {
        table: _flows(table_flows, operators, plan, key)
        for table, table_flows in flows_by_table(
            plan, estimates, PER, rows_of_change, shards
        ).items()
    }
    sources = {node.identity: node for node in plan.walk() if isinstance(node, Source)}
    operator_inputs = [input_node for node in operators.values() for input_node in node.inputs()]
    return PlanCost(
        sizes,
        flows,
        {name: estimates.of(node).rows for name, node in operators.items()}
        | {VIEW: estimates.of(plan).rows},
        {table: estimates.table_rows(table) for table in sorted(plan.tables())},
        sum(estimates.of(node).rows for node in sources.values()),
        sum(estimates.of(node).rows for node in [*operator_inputs, plan]),
    )


def _flows(
    table_flows: Flows, operators: Mapping[str, Node], plan: Node, key: tuple[str, ...]
) -> dict[str, Flow]:
    operator_flows = {name: table_flows.of(node) for name, node in operators.items()}
    return {**operator_flows, VIEW: table_flows.of_view(plan, key)}


def estimated(
    cost: PlanCost, constants: Constants, rates: Rates, shared: Iterable[str]
) -> Document:
    """The whole estimate as plain data; operators that are `shared` cost nothing more."""
    shared = set(shared)
    new = [name for name in cost.sizes if name not in shared]
    tables = {table: _of_table(cost, table, constants, rates, new) for table in cost.tables}
    epoch = constants.epoch + constants.operator * len(new)
    load = _load_seconds(cost, constants, len(cost.sizes))
    change = sum(table["share"] * table["seconds"] / PER for table in tables.values())
    rows = sum(cost.tables.values())
    changes = max(0.0, load - epoch) / change if change else None
    return {
        "constants": constants.to_json(),
        "state": _size(cost.sizes.values()),
        "new_state": _size(cost.sizes[name] for name in new),
        "load_seconds": load,
        "epoch_seconds": epoch,
        "rates": {"epochs": rates.epochs},
        "per_1000_changes": tables,
        "recompute": {
            "changes": changes,
            "share": None if changes is None or not rows else changes / rows,
        },
    }


def _of_table(
    cost: PlanCost, table: str, constants: Constants, rates: Rates, new: list[str]
) -> Document:
    flows = [cost.flows[table][name] for name in new]
    return {
        "rows": cost.tables[table],
        "share": rates.shares[table],
        "rows_in": sum(flow.rows_in for flow in flows),
        "reads": sum(flow.reads for flow in flows),
        "writes": sum(flow.writes for flow in flows),
        "seconds": PER * constants.send + sum(map(constants.of_flow, flows)),
    }


def of_operator(cost: PlanCost, name: str, constants: Constants) -> Document:
    """The part of one operator, or of the view's rows."""
    return {
        "rows": cost.rows[name],
        "state": _size([cost.sizes[name]]),
        "per_1000_changes": {
            table: {
                "rows_in": flows[name].rows_in,
                "rows_out": flows[name].rows,
                "reads": flows[name].reads,
                "writes": flows[name].writes,
                "seconds": constants.of_flow(flows[name]),
            }
            for table, flows in cost.flows.items()
        },
    }


def _load_seconds(cost: PlanCost, constants: Constants, operators: int) -> float:
    items = sum(size.items for size in cost.sizes.values())
    fixed = constants.load + constants.load_operator * operators
    return fixed + (cost.sources + cost.load_rows) * constants.load_row + items * constants.append


def _size(sizes: Iterable[Size]) -> Document:
    all_sizes = list(sizes)
    return {
        "rows": round(sum(s.items for s in all_sizes)),
        "bytes": round(sum(s.bytes for s in all_sizes)),
    }
