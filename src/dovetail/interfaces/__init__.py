"""Every Protocol that a part of Dovetail, or a plugin, can implement. Read this first.

    events ──► Engine ──► decisions            the engine knows no clock and does no I/O
                 │ view
                 ▼
               Policy ── asks ──► RuntimeModel (how long?)   RateModel (how fast while sharing?)

A `Policy` is a frozen dataclass of its parameters and keeps no state between calls: whatever
accumulates (queues, promises, predictions used) is the engine's accounting, shown in the `View`.
Times are seconds, memory is bytes.

- `policy`: `Policy`, `Planner`, who decide, and the `Traits` that they declare.
- `views`: `View` and what it is made of, all that they may know.
- `learning`: `RuntimeModel`, `History`, `RateModel`, forecasts.
- `execution`: `Executor`, what some can do beyond that, `Backend`.
- `reading`: `WorkloadReader`.
"""

from __future__ import annotations

from dovetail.interfaces.execution import (
    AdoptsJobs,
    Backend,
    ChecksJobs,
    Executor,
    HearsEvents,
    KeepsOutput,
    LeavesJobs,
    LeftBehind,
    MigratesJobs,
    RunFolder,
    ShortensLog,
    SignalsJobs,
    StartsAfter,
    StillRuns,
    SubmitsJobs,
    TakenAway,
    TakesBack,
    TellsTrouble,
)
from dovetail.interfaces.learning import (
    Expected,
    Forecast,
    History,
    PricesBorrowing,
    RateModel,
    RuntimeModel,
    SeesProgress,
)
from dovetail.interfaces.policy import (
    Planner,
    Policy,
    Traits,
    traits_of,
)
from dovetail.interfaces.reading import (
    WorkloadReader,
)
from dovetail.interfaces.views import (
    Changes,
    Deadlines,
    Free,
    Outside,
    Profile,
    Queue,
    Recent,
    Shadow,
    View,
)

__all__ = [
    "AdoptsJobs",
    "Backend",
    "Changes",
    "ChecksJobs",
    "Deadlines",
    "Executor",
    "Expected",
    "Forecast",
    "Free",
    "HearsEvents",
    "History",
    "KeepsOutput",
    "LeavesJobs",
    "LeftBehind",
    "MigratesJobs",
    "Outside",
    "Planner",
    "Policy",
    "PricesBorrowing",
    "Profile",
    "Queue",
    "RateModel",
    "Recent",
    "RunFolder",
    "RuntimeModel",
    "SeesProgress",
    "Shadow",
    "ShortensLog",
    "SignalsJobs",
    "StartsAfter",
    "StillRuns",
    "SubmitsJobs",
    "TakenAway",
    "TakesBack",
    "TellsTrouble",
    "Traits",
    "View",
    "WorkloadReader",
    "traits_of",
]
