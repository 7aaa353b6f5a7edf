"""State by key, computed in Arrow or in Python: what a task does between its input and its store."""

from holdfast.groups.aggregate import AggregatePlan
from holdfast.groups.arrow_function import ArrowFunctionPlan
from holdfast.groups.engine import Engine, Moment, Plan, StoreSchema
from holdfast.groups.row_function import GroupState, RowFunctionPlan
from holdfast.groups.spool import Spool
from holdfast.groups.store_function import StoreFunctionPlan

__all__ = [
    "AggregatePlan",
    "ArrowFunctionPlan",
    "Engine",
    "GroupState",
    "Moment",
    "Plan",
    "RowFunctionPlan",
    "Spool",
    "StoreFunctionPlan",
    "StoreSchema",
]
