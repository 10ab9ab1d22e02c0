"""A hand-made run on an H200: the example's kernels taken for Triton's, with times, candidates and time lines.

Host and device times are those that were measured of the article's MLP (eager, compiled, with CUDA graphs).
`python tests/example_gpu.py STORE` writes it into a store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from example_graph import inductor_graph
from example_run import example_run

from fusionscope.collector.targets.devices import DEVICES
from fusionscope.storage import records as r
from fusionscope.storage.library import Library
from fusionscope.storage.spool import Spool

GPU_ID = "20260102-060708-a7b8c9"
GRAPH = "0/0.inference"
ADDMM, RELU, SOFTMAX = (
    f"{GRAPH}/{name}" for name in ("extern_kernels.addmm", "cpp_fused_relu_0", "cpp_fused__softmax_1")
)
MEASURED = {  # µs: latency, device, host
    "eager": (158.9, 90.5, 162.4),
    "compiled": (197.5, 88.3, 192.7),
    "reduce-overhead": (103.6, 97.1, 83.3),
}
TIMED = {ADDMM: (4, 20.3), RELU: (3, 1.55), SOFTMAX: (1, 4.8)}  # calls, µs of one


def publish_gpu(store: Path) -> str:
    """Record the run into `store` and import it; returns its run id."""
    run = example_run(GPU_ID, "mlp_gpu", device_kind="cuda", device_name="NVIDIA H200", fp32_matmul="ieee")
    device = replace(
        DEVICES["H200"], copy_gbps=4100.0, matmul_tflops=740.0, method="the median of 20 large copies and products"
    )
    spool = Spool.create(store, run)
    spool.append([device, *inductor_graph("0/0", batch=64, position=0), *_timings(), *_candidates(), *_spans()])
    spool.publish(run)
    Library(store).import_inbox()
    return run.run_id


def _timings() -> Iterator[Any]:
    for variant, of in MEASURED.items():
        for metric, us in zip(("latency_us", "device_us", "host_us"), of, strict=True):
            yield r.Measurement(variant=variant, metric=metric, median=us, unit="us", method=f"{metric}, by hand")
    for kernel_id, (calls, us) in TIMED.items():
        yield r.KernelTiming(
            name=kernel_id.rpartition("/")[2],
            kernel_id=kernel_id,
            variant="compiled",
            calls=calls,
            median_us=us,
            total_us=calls * us,
            method="device time in the profiler",
        )


def _candidates() -> Iterator[Any]:
    for warps, us in ((4, 4.8), (8, 5.4), (16, None)):
        yield r.KernelConfig(
            kernel_id=SOFTMAX,
            config=f"XBLOCK=1 num_warps={warps} num_stages=1",
            num_warps=warps,
            num_stages=1,
            registers=40 + warps,
            n_spills=0,
            spill_bytes=0,
            occupancy=0.75,
            occupancy_limit="registers",
            chosen=warps == 4,
            time_us=us,
            origin="heuristics",
        )
    product: dict[str, Any] = {"graph_id": GRAPH, "op": "addmm", "node": "addmm", "shapes": "512, 64x512, 512x512"}
    yield r.GemmChoice(**product, choice="addmm", kind="library", time_us=20.3, chosen=True)
    for block, us in ((64, 22.1), (128, 31.5)):
        yield r.GemmChoice(
            **product,
            choice=f"triton_mm_{block}",
            kind="triton",
            config=f"BLOCK_M={block} BLOCK_N={block} num_warps=4",
            time_us=us,
            chosen=False,
        )
    yield r.GemmChoice(**product, choice="triton_mm_256", kind="triton", chosen=False, error="out of shared memory")


def _spans() -> Iterator[r.TimelineSpan]:
    """Four products with an activation after each: issued one after the other, run a little later."""
    for variant, (_, device, host) in MEASURED.items():
        steps = [(ADDMM, 0.8), (RELU, 0.2)] * 3 + [(ADDMM, 0.8), (SOFTMAX, 0.2)]
        issue, ready = host / len(steps), 0.0
        for number, (kernel_id, share) in enumerate(steps):
            name, start = kernel_id.rpartition("/")[2], number * issue
            begin = max(ready, start + 0.7 * issue)
            ready = begin + share * device / 4
            span: dict[str, Any] = {"variant": variant, "name": name, "kernel_id": kernel_id, "op": "aten::addmm"}
            yield r.TimelineSpan(**span, lane="host", start_us=start, end_us=start + 0.9 * issue)
            yield r.TimelineSpan(**span, lane="device", start_us=begin, end_us=ready)


if __name__ == "__main__":
    publish_gpu(Path(sys.argv[1]))
