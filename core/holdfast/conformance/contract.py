"""The whole kit as one class."""

from __future__ import annotations

from holdfast.conformance.crash_contract import CrashContract
from holdfast.conformance.guard_contract import GuardContract
from holdfast.conformance.machine import MachineContract
from holdfast.conformance.race_contract import RaceContract
from holdfast.conformance.scan_contract import ScanContract
from holdfast.conformance.store_contract import StoreContract
from holdfast.conformance.version_contract import VersionContract


class ProviderContract(
    StoreContract, VersionContract, GuardContract, ScanContract, RaceContract, MachineContract, CrashContract
):
    """Everything a provider must pass. Subclass it and define the fixture ``backend``."""
