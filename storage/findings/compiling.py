"""Rules about compiling itself: is it over, did it happen again, did it stop on the way?"""

from __future__ import annotations

from fusionscope.storage.conclusion_records import UNSTEADY
from fusionscope.storage.findings._rule import (
    NOTE,
    PROBLEM,
    Facts,
    Failed,
    NotApplicable,
    Passed,
    Rule,
    Verdict,
    at,
    several,
)
from fusionscope.storage.records import (
    Compile,
    CudagraphEvent,
    GraphBreak,
    HookStatus,
    Measurement,
    Recompile,
    Symbol,
)

Cures = tuple[tuple[tuple[str, ...], str], ...]

# What a failed guard speaks of (torch/_dynamo/guards.py) → what a user can do about it.
_CURES: Cures = (
    (
        ("size mismatch", ".size()", "stride mismatch", "rank mismatch"),
        "Mark the dimension that changes with torch._dynamo.mark_dynamic(tensor, dim), or compile with dynamic=True.",
    ),
    (
        ("requires_grad", "grad_mode", "GradMode", "inference"),
        "Call the model in one gradient mode, or compile one callable for each.",
    ),
    ((".training",), "Call train() or eval() before compiling, and compile one callable for each."),
    (("___check_obj_id", "___check_type_id"), "Pass the same object in every call instead of a new one."),
    (("==", "item()"), "Pass the number that changes as a tensor, or keep it out of the compiled function."),
)


# What the reason of a skip speaks of (torch/_inductor/cudagraph_utils.py) → what a user can do about it.
_CUDAGRAPH_CURES: Cures = (
    (
        ("mutated inputs",),
        "Return the new value instead of writing into an input, or keep it as a buffer of the module.",
    ),
    (("cpu device", "cpu tensor"), "Make every tensor on the GPU, or keep that part out with torch.compiler.disable."),
    (("dynamic shape", "symint", "distinct sizes"), "Pad inputs to a few sizes, or compile with dynamic=False."),
    (("multiple devices",), "Keep the compiled function on one GPU."),
    (("incompatible op", "unsupported"), "Keep that operation out with torch.compiler.disable."),
)


def steady_state(facts: Facts) -> Verdict:
    """No compilation inside the timed calls."""
    timed = [row for row in facts.of(Measurement) if row.metric == "latency_us"]
    thrown = [row for row in timed if _unsteady(row)]
    never = _never_steady(facts)
    if never:
        return Failed("Something was compiled in every timed call, so that none counts.", never)
    if not timed:
        return NotApplicable("no latency was measured")
    if thrown:
        counts = tuple(f"{row.variant}: {several(row.discarded, 'sample')} thrown away" for row in thrown)
        return Failed("Something was still compiled during timed calls.", counts)
    samples = sum(row.samples for row in timed)
    return Passed(f"Nothing was compiled during {several(samples, 'timed sample')}.")


def _never_steady(facts: Facts) -> tuple[str, ...]:
    """Variants of which each sample was thrown away; they have no latency at all."""
    told = (status.reason or "" for status in facts.of(HookStatus) if status.hook == "measure")
    return tuple(reason for text in told for reason in text.split("; ") if reason.endswith(UNSTEADY))


def _unsteady(row: Measurement) -> bool:
    """Any compilation after a warm-up; of a program's own calls, which begin cold, as many as the steady ones."""
    return row.discarded > (0 if "after warm-up" in row.method else row.samples)


def recompiling(facts: Facts) -> Verdict:
    """A frame was compiled again since a guard failed; once is how torch learns that a size is dynamic."""
    if not facts.of(Compile):
        return NotApplicable("no compilation was recorded")
    rows = facts.of(Recompile)
    again = len({row.compile_id for row in rows})
    if not rows:
        return Passed("No guard failed.")
    refused = [row for row in rows if row.outcome == "refused"]
    limit = (
        f", until the limit of {refused[0].compile_limit} was reached and the rest ran uncompiled" if refused else ""
    )
    evidence = tuple(f"{row.compile_id}: {row.reason or row.guard}" for row in rows)
    return Failed(
        f"{several(again, 'compilation')} took place since a guard had failed{limit}.",
        evidence,
        PROBLEM if refused or again > 1 else NOTE,
        action=cure(" ".join(f"{row.guard} {row.reason}" for row in rows)),
    )


def cure(guard: str) -> str:
    """What to do about a guard that failed, by what its text speaks of."""
    return _advice(_CURES, guard) or "Keep what the guard checks the same between calls."


def _advice(cures: Cures, text: str) -> str | None:
    found = (advice for signs, advice in cures if any(sign in text for sign in signs))
    return next(found, None)


def graph_breaks(facts: Facts) -> Verdict:
    """Tracing stopped: what lies on two sides of a break is never fused."""
    if not facts.of(Compile):
        return NotApplicable("no compilation was recorded")
    sites = facts.of(GraphBreak)
    if not sites:
        return Passed("Every frame was traced whole.")
    ran = sorted(sites, key=lambda site: -(site.executions or 0))
    evidence = tuple(f"{at(s.file, s.line)}: {s.kind}{_executed(s)}" for s in ran)
    hints = [s.hint.strip().splitlines()[0] for s in ran if s.hint and s.hint.strip()]
    stopped = f"Tracing stopped at {several(len(sites), 'place')}"
    if left := [c for c in facts.of(Compile) if c.outcome == "skipped" and "loop" in (c.reason or "")]:
        whole = tuple(f"{at(c.file, c.line)}: all of {c.function} ran uncompiled" for c in left)
        ran_uncompiled = f"{stopped}; inside a loop, so that {several(len(left), 'whole function')} ran uncompiled."
        return Failed(ran_uncompiled, (*whole, *evidence), action=_OUT_OF_THE_LOOP)
    return Failed(f"{stopped}.", evidence, action=hints[0] if hints else None)


_OUT_OF_THE_LOOP = "Take the call that breaks out of the loop, or compile the loop's body as a function of its own."


def _executed(site: GraphBreak) -> str:
    return "" if site.executions is None else f", run {several(site.executions, 'time')}"


def cudagraphs_skipped(facts: Facts) -> Verdict:
    """CUDA graphs were asked for and are not used."""
    if facts.run.mode not in ("reduce-overhead", "max-autotune"):
        return NotApplicable("the mode asks for no CUDA graphs")
    events = facts.of(CudagraphEvent)
    skipped = [event for event in events if event.event == "skipped"]
    if skipped:
        evidence = tuple(f"{e.reason}{f' at {at(e.file, e.line)}' if e.file else ''}" for e in skipped)
        why = " ".join(event.reason or "" for event in skipped).lower()
        without = f"CUDA graphs were asked for, and {several(len(skipped), 'graph')} did without."
        return Failed(without, evidence, action=_advice(_CUDAGRAPH_CURES, why))
    if facts.run.device_kind != "cuda":
        return NotApplicable("the model did not run on a CUDA device")
    return Passed(f"{several(sum(e.event == 'recorded' for e in events), 'CUDA graph')} recorded.")


def dynamic_shapes(facts: Facts) -> Verdict:
    """Sizes that are symbols make kernels generic: no exact tiles, no vectorisation without a remainder."""
    if not facts.of(Compile):
        return NotApplicable("no compilation was recorded")
    free = {s.symbol: s for s in facts.of(Symbol) if s.specialised_to is None}
    if not free:
        return Passed("Every size is a constant in the generated code.")
    evidence = tuple(
        f"{s.symbol}: {s.source or 'known at run time'}, {s.hint or 'unknown'} when compiled" for s in free.values()
    )
    return Failed(f"{several(len(free), 'size')} stayed a symbol in the kernels.", evidence, NOTE)


RULES = (
    Rule(
        "steady_state",
        "Timed calls were not steady",
        "compile",
        "Give every call the same shapes, dtypes and modes; the Compile page tells what was compiled again, and why.",
        steady_state,
    ),
    Rule("recompiling", "Compiled again and again", "compile", cure(""), recompiling),
    Rule(
        "graph_breaks",
        "The graph is broken",
        "compile",
        "Move the call out of the compiled function, or give it to torch.compiler.disable.",
        graph_breaks,
    ),
    Rule(
        "cudagraphs_skipped",
        "CUDA graphs skipped",
        "compile",
        "Change what the reason names, or keep that operation out with torch.compiler.disable.",
        cudagraphs_skipped,
    ),
    Rule(
        "dynamic_shapes",
        "Dynamic shapes",
        "compile",
        "Where the sizes are few, dynamic=False compiles one set of kernels for each.",
        dynamic_shapes,
        trial=("--no-dynamic",),
    ),
)
