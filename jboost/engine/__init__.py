"""How a run over time is compiled. No model, state or checkpoint knows of it.

`loop` has `fold`, through which every run goes: it takes a model, its state and rows. `plan`
decides between one kernel and a plain scan, `pieces` cuts a stream so that one program serves every
length, `layout` arranges model and state in memory, `kernel` tags and compiles, `cache` chooses
the folder in which `kept` keeps whole programs between processes, by `descriptions` of what they
depend on; `executables` makes bytes of a program, and the reverse. `trailing` and `packing` are
tools of these. May import from `core` to
`wrappers`: it lays models out in memory and must know their classes.
"""

from jboost.engine.loop import fold, last
from jboost.engine.plan import use

__all__ = ["fold", "last", "use"]
