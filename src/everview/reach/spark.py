"""Checks Spark's plans of a query: all nodes, relations and expressions have to be on the lists.

The parsed plan is checked before Spark resolves it, since that runs commands and lists files. The
analysed plan is checked before Spark runs it, since only there names have become relations and
functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from everview.errors import OutOfReach
from everview.reach.functions import FUNCTIONS, MOST_ARGUMENTS
from everview.reach.tokens import REMEDY
from everview.spark.trees import each

_CATALYST = "org.apache.spark.sql.catalyst."
_PARSED = {
    *("Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit"),
    *(
        "Intersect",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "LocalRelation",
        "Offset",
        "OneRowRelation",
    ),
    *("PipeOperator", "Pivot", "Project", "RepartitionByExpression", "Sample", "Sort"),
    *("SubqueryAlias", "Union", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable"),
    *("UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases"),
    *("UnresolvedTableValuedFunction", "UnresolvedWith", "Unpivot", "WithWindowDefinition"),
    *("AsOfJoin", "LimitAll", "NearestByJoin", "UnresolvedQualify"),
}
_ANALYZED = {
    *("Aggregate", "CTERelationDef", "CTERelationRef", "Deduplicate", "Distinct", "Except"),
    *("EventTimeWatermark", "Expand", "Filter", "Generate", "GlobalLimit", "Intersect", "Join"),
    *("LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Project", "Range"),
    *("RebalancePartitions", "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample"),
    *("ResolvedInlineTable", "Sort", "SubqueryAlias", "Union", "UnionLoop", "UnionLoopRef", "View"),
    *("AsOfJoin", "LimitAll", "MapInArrow", "NearestByJoin", "Window", "WithCTE"),
}
_EXECUTED = {  # relations: rows of a frame, and our tables
    "org.apache.spark.sql.execution.LogicalRDD",
    "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation",
}
# expressions that do more than compute, whatever their name in SQL
_REACHING = {
    *("ApplyFunctionExpression", "CallMethodViaReflection", "FromAvro", "FromProtobuf"),
    *("InputFileBlockLength", "InputFileBlockStart", "InputFileName", "NamedParameter"),
    *("PosParameter", "PythonUDAF", "PythonUDF", "PythonUDTF", "SchemaOfAvro", "ScalaUDF"),
    *("ToAvro", "ToProtobuf", "TryReflect", "UnresolvedPolymorphicPythonUDTF", "V2Aggregator"),
    *("VariableReference",),
}


def ask(
    session: SparkSession,
    query: str,
    relations: Collection[str],
    text: str | None = None,
    **frames: Any,
) -> DataFrame:
    """The rows of a query in a session of Spark itself. Spark runs `text`, if there is one, which
    has the query within it, and frames in place of relations. Raises `OutOfReach`, and the errors
    of Spark."""
    state: Any = session._jsparkSession.sessionState()
    _check_parsed(session, state.sqlParser().parsePlan(query))
    frame = session.sql(text or query, **frames)
    known = None if frames else {name.lower() for name in relations}
    _check_analyzed(session, frame._jdf.queryExecution().analyzed(), known)
    return frame


def _check_parsed(session: SparkSession, plan: Any) -> None:
    trees = _Trees.of(session._jvm)
    for nodes, expressions in trees.parts(plan):
        _check_kinds(trees, nodes, expressions, _PARSED)
        for relation in trees.only(nodes, "analysis.UnresolvedRelation"):
            parts = [str(part) for part in each(relation.multipartIdentifier())]
            if len(parts) > 1:
                raise OutOfReach(
                    f"{'.'.join(parts)} is no table or view of this database; a relation is named "
                    f"by one word. {REMEDY}"
                )
        for function in trees.only(nodes, "analysis.UnresolvedTableValuedFunction"):
            _check_function([str(part) for part in each(function.name())])
        for generator in trees.only(expressions, "analysis.UnresolvedGenerator"):
            _check_function(str(generator.name().unquotedString()).split("."))
        for name, arguments in trees.calls(expressions):
            _check_function(name, arguments)


def _check_function(name: list[str], arguments: int = 0) -> None:
    full_name = ".".join(name)
    if len(name) > 1 or full_name.lower() not in FUNCTIONS:
        raise OutOfReach(f"the function {full_name} can't be called here. {REMEDY}")
    if arguments > MOST_ARGUMENTS.get(full_name.lower(), arguments):
        raise OutOfReach(
            f"{full_name} with options can't be called here, since they can name a file; leave "
            f"them out. {REMEDY}"
        )


def _check_analyzed(session: SparkSession, plan: Any, known: set[str] | None) -> None:
    """`known` are the temporary views that stand for relations; None allows all of them."""
    trees = _Trees.of(session._jvm)
    for nodes, expressions in trees.parts(plan):
        _check_kinds(trees, nodes, expressions, _ANALYZED)
        foreign = [
            *_foreign_views(trees.views(nodes), known),
            *(str(table.name()) for table in trees.tables(nodes) if table.catalog().isDefined()),
        ]
        if foreign:
            raise OutOfReach(f"{foreign[0]} is no table or view of this database. {REMEDY}")


def _foreign_views(views: Iterator[Any], known: set[str] | None) -> Iterator[str]:
    for view in views:
        name = str(view.desc().identifier().table())
        if not view.isTempView() or (known is not None and name.lower() not in known):
            yield name


def _check_kinds(trees: _Trees, nodes: Any, expressions: Any, known: set[str]) -> None:
    for name in trees.classes(nodes):
        simple = name.rsplit(".", 1)[-1]
        is_known = name.startswith(_CATALYST) and simple in known
        if not is_known and not (name in _EXECUTED and known is _ANALYZED):
            raise OutOfReach(f"{simple} can't be in a query. {REMEDY}")
    for name in trees.classes(expressions):
        simple = name.rsplit(".", 1)[-1]
        if not name.startswith(_CATALYST) or simple in _REACHING:
            raise OutOfReach(f"{simple} can't be in an expression. {REMEDY}")


class _Trees:
    """Searches trees of Catalyst inside the JVM: from here, a query with a thousand expressions
    would take many thousand round trips.

    It passes methods of Java and Spark to Scala as functions.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        itself = getattr(getattr(jvm.scala, "Predef$").__getattr__("MODULE$"), "$conforms")()
        partial = getattr(jvm.scala, "PartialFunction$").__getattr__("MODULE$")
        self._itself = partial.fromFunction(itself)
        self._class_of = self._method("java.lang.Object", "getClass", "java.lang.Class")
        self._name_of = self._method("java.lang.Class", "getName", "java.lang.String")
        sequence = "scala.collection.immutable.Seq"
        plan, function = f"{_CATALYST}plans.QueryPlan", f"{_CATALYST}analysis.UnresolvedFunction"
        self._expressions_of = self._method(plan, "expressions", sequence)
        self._parts_of = self._method(f"{_CATALYST}trees.TreeNode", "collect", sequence, True)
        self._name_parts_of = self._method(function, "nameParts", sequence)

    @staticmethod
    @lru_cache(1)
    def of(jvm: Any) -> _Trees:
        return _Trees(jvm)

    def parts(self, plan: Any) -> Iterator[tuple[Any, Any]]:
        """All nodes and all expressions of a plan, with its subqueries; then those of WITH and
        WINDOW, which Catalyst keeps apart."""
        nodes = plan.collectWithSubqueries(self._itself)
        # no SQL creates MapInArrow; a refresh of a view reads its tables with it
        others = nodes.filterNot(self._is_a(f"{_CATALYST}plans.logical.MapInArrow"))
        expressions = others.flatMap(self._expressions_of).flatMap(self._parts_of)
        yield nodes, expressions
        for node in self.only(nodes, "plans.logical.UnresolvedWith"):
            for relation in each(node.cteRelations()):
                yield from self.parts(relation._2())
        for node in self.only(nodes, "plans.logical.WithWindowDefinition"):
            for window in each(node.windowDefinitions().values()):
                inner = window.collect(self._itself)
                yield nodes.take(0), inner
                for subquery in self.only(inner, "expressions.PlanExpression"):
                    yield from self.parts(subquery.plan())

    def classes(self, trees: Any) -> list[str]:
        """The names of the trees' classes, each once."""
        names = trees.map(self._class_of).distinct().map(self._name_of)
        return str(names.mkString(" ")).split()

    def only(self, trees: Any, name: str) -> Iterator[Any]:
        """The trees of one class of Catalyst."""
        return each(trees.filter(self._is_a(_CATALYST + name)))

    def views(self, nodes: Any) -> Iterator[Any]:
        return self.only(nodes, "plans.logical.View")

    def tables(self, nodes: Any) -> Iterator[Any]:
        relation = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
        return each(nodes.filter(self._is_a(relation)))

    def calls(self, expressions: Any) -> Iterator[tuple[list[str], int]]:
        """The names of the called functions, each once with 0; functions with a limit of arguments
        also once for each call, with the number of arguments."""
        calls = expressions.filter(self._is_a(f"{_CATALYST}analysis.UnresolvedFunction"))
        limited = False
        for parts in each(calls.map(self._name_parts_of).distinct()):
            name = [str(part) for part in each(parts)]
            limited = limited or name[-1].lower() in MOST_ARGUMENTS
            yield name, 0
        for call in each(calls) if limited else ():
            yield [str(part) for part in each(call.nameParts())], call.arguments().size()

    def _method(self, of: str, name: str, gives: str, of_itself: bool = False) -> Any:
        """A method as a function of Scala; a method that takes a function gets the identity."""
        class_, handles = self._jvm.java.lang.Class.forName, self._jvm.java.lang.invoke
        types = [class_(gives)] + ([class_("scala.PartialFunction")] if of_itself else [])
        type_ = handles.MethodType.methodType(*types)
        method = handles.MethodHandles.publicLookup().findVirtual(class_(of), name, type_)
        if of_itself:
            method = handles.MethodHandles.insertArguments(method, 1, self._array(self._itself))
        return self._function(method)

    @lru_cache(32)  # noqa: B019
    def _is_a(self, name: str) -> Any:
        class_, handles = self._jvm.java.lang.Class.forName, self._jvm.java.lang.invoke
        type_ = handles.MethodType.methodType(
            self._jvm.java.lang.Boolean.TYPE, class_("java.lang.Object")
        )
        lookup = handles.MethodHandles.publicLookup()
        return self._function(lookup.bind(class_(name), "isInstance", type_))

    def _function(self, method: Any) -> Any:
        function = self._jvm.java.lang.Class.forName("java.util.function.Function")
        java = self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(function, method)
        return self._jvm.scala.jdk.javaapi.FunctionConverters.asScalaFromFunction(java)

    def _array(self, item: Any) -> Any:
        items = self._jvm.java.util.ArrayList()
        items.add(item)
        return items.toArray()
