"""Holding prediction and run against each other: records, meters, ceilings, claims.

The clock of the whole project lives here and only here.
"""

from inferlab.lab.ceilings import Calibration, calibrate, gemm_probe, read_probe
from inferlab.lab.choice import Choice, choose
from inferlab.lab.claims import Case, ClaimFailed, claim
from inferlab.lab.intervals import Interval
from inferlab.lab.meters import flops, memory, paired, repeat, timed, timeline
from inferlab.lab.records import Measurement, machine, provenance

__all__ = [
    "Calibration", "Case", "Choice", "ClaimFailed", "Interval", "Measurement", "calibrate",
    "choose", "claim", "flops", "gemm_probe", "machine", "memory", "paired", "provenance",
    "read_probe", "repeat", "timed", "timeline",
]  # fmt: skip
