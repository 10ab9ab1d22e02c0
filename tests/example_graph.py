"""What Inductor decided in the example run: one graph, from its FX nodes to the plan of its wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fusionscope.storage import records as r

HIDDEN = 512
LAYERS = 4
SOURCE = "/home/ada/models/mlp.py"


def inductor_graph(compile_id: str, *, batch: int, position: int) -> Iterator[Any]:
    graph = f"{compile_id}.inference"
    activation, row = batch * HIDDEN * 4, batch * 4
    for stage in ("dynamo", "aot_inference"):
        kind = "dynamo" if stage == "dynamo" else "inference"
        yield r.Graph(
            graph_id=f"{compile_id}.{stage}",
            compile_id=compile_id,
            stage=kind,
            code="def forward(self, x):\n    ...\n",
            position=position,
        )
    code, output = (
        "def forward(self, arg0_1):\n    ...\n",
        "def call(self, args):\n" + "".join(f"    {line}\n" for line in _wrapper()),
    )
    yield r.Graph(
        graph_id=graph,
        compile_id=compile_id,
        stage="post_grad",
        direction="inference",
        fx_key=f"fx{position + 1}",
        code=code,
        output_code=output,
        position=position,
    )
    yield from _fx(graph, batch)
    yield from _scheduler(graph, batch, activation, row)
    yield from _fusion(graph, activation, row)
    yield from _kernels(graph, activation, row)
    yield from _buffers(graph, batch, activation, row)
    yield from _plan(graph, activation, row)


def _fx(graph: str, batch: int) -> Iterator[Any]:
    """addmm and relu per layer, then the softmax as Inductor decomposes it."""
    chain = [name for layer in range(LAYERS) for name in (_nth("addmm", layer), _nth("relu", layer))][:-1]
    edges = [
        *pairwise(chain),
        (chain[-1], "amax"),
        (chain[-1], "sub"),
        ("amax", "sub"),
        ("sub", "exp"),
    ]
    edges += [("exp", "sum_1"), ("exp", "div"), ("sum_1", "div"), ("div", "output"), ("x", chain[0])]
    rows = {"amax", "sum_1"}
    for position, node in enumerate(["x", *chain, "amax", "sub", "exp", "sum_1", "div", "output"]):
        op = {"x": "placeholder", "output": "output"}.get(node, "call_function")
        width = 1 if node in rows else HIDDEN
        layer = chain.index(node) // 2 if node in chain else None
        yield r.GraphNode(
            graph_id=graph,
            node=node,
            position=position,
            op=op,
            target=node if op != "call_function" else f"aten.{node.rstrip('_123')}.default",
            shape=(str(batch), str(width)),
            stride=(str(width), "1"),
            dtype="float32",
            bytes=batch * width * 4,
            flops=2 * batch * HIDDEN * HIDDEN if node.startswith("addmm") else None,
            module_path=None if layer is None else f"layers.{layer}",
            file=SOURCE,
            line=16 + (layer if layer is not None else LAYERS),
            source_text="return torch.softmax(x, dim=-1)" if layer is None else "x = torch.relu(layer(x))",
        )
    for src, dst in edges:
        yield r.GraphEdge(graph_id=graph, src=src, dst=dst)
    yield r.RealizeDecision(
        graph_id=graph,
        node="exp",
        users=2,
        reads=2,
        opcount=3,
        threshold="CPU: exp is a heavy operation",
        realized=True,
        reason="reused and expensive",
        bytes=batch * HIDDEN * 4,
    )
    yield r.RealizeDecision(
        graph_id=graph,
        node="sub",
        users=2,
        reads=2,
        opcount=2,
        threshold="reads <= 4, operations <= 30",
        realized=False,
        reason="cheaper to compute again",
        bytes=batch * HIDDEN * 4,
    )
    yield r.LayoutChange(
        graph_id=graph,
        node="addmm",
        kind="freeze_layout",
        is_copy=False,
        from_stride=("1", "512"),
        to_stride=("512", "1"),
        bytes=0,
        reason="a library call fixes the layout of its output",
    )


def _nth(name: str, index: int) -> str:
    return f"{name}_{index}" if index else name


def _scheduler(graph: str, batch: int, activation: int, row: int) -> Iterator[Any]:
    weights = HIDDEN * (HIDDEN + 1) * 4
    for layer in range(LAYERS):
        op = f"op{2 * layer}"
        gemm: dict[str, Any] = {
            "kind": "extern",
            "target": "extern_kernels.addmm",
            "flops": 2 * batch * HIDDEN * HIDDEN,
        }
        yield r.IrNode(
            graph_id=graph,
            ir_node=op,
            **gemm,
            bytes_read=activation + weights,
            bytes_written=activation,
            origins=(_nth("addmm", layer),),
            buffers=(f"buf{2 * layer}",),
            position=2 * layer,
        )
        if layer < LAYERS - 1:
            yield _loop(graph, 2 * layer + 1, "pointwise", (_nth("relu", layer),), activation, activation)
    yield _loop(graph, 7, "reduction", ("amax",), activation, row)
    yield _loop(graph, 8, "pointwise", ("sub", "exp"), activation + row, activation)
    yield _loop(graph, 9, "reduction", ("sum_1",), activation, row)
    yield _loop(graph, 10, "pointwise", ("div",), activation + row, activation)
    for src, dst in [*((i, i + 1) for i in range(7)), (6, 8), (7, 8), (8, 9), (8, 10), (9, 10)]:
        size = row if src in (7, 9) else activation
        yield r.IrEdge(
            graph_id=graph, src=f"op{src}", dst=f"op{dst}", buffer=f"buf{src}", bytes=size, materialised=src != 8
        )


def _loop(graph: str, index: int, kind: str, origins: tuple[str, ...], read: int, written: int) -> r.IrNode:
    return r.IrNode(
        graph_id=graph,
        ir_node=f"op{index}",
        kind=kind,
        bytes_read=read,
        bytes_written=written,
        origins=origins,
        buffers=(f"buf{index}",),
        position=index,
    )


def _fusion(graph: str, activation: int, row: int) -> Iterator[Any]:
    fused: dict[str, Any] = {
        "graph_id": graph,
        "direction": "vertical",
        "verdict": "fused",
        "score_template": 2,
        "score_type": 0,
        "rank": 0,
    }
    yield r.FusionDecision(
        **fused,
        round=1,
        a="op8",
        b="op9",
        score_memory=activation,
        score_overlap=0,
        score_proximity=-1,
        order_taken=0,
        result="op8_op9",
        shared_bytes=activation,
    )
    yield r.FusionDecision(
        **fused,
        round=2,
        a="op7",
        b="op8_op9",
        score_memory=activation + row,
        score_overlap=0,
        score_proximity=-1,
        order_taken=1,
        result="op7_op8_op9",
        shared_bytes=activation + row,
    )
    yield r.FusionDecision(
        **fused,
        round=2,
        a="op7_op8_op9",
        b="op10",
        score_memory=activation + row,
        score_overlap=0,
        score_proximity=-2,
        order_taken=2,
        result="op7_op8_op9_op10",
        shared_bytes=activation + row,
    )
    refused: dict[str, Any] = {"graph_id": graph, "verdict": "refused", "times_tested": 2}
    between: dict[str, Any] = {
        "reason_code": "intermediate_nodes",
        "reason": "intermediate nodes between node1 & node2",
        "refused_by": "Scheduler.can_fuse_vertical",
    }
    yield r.FusionDecision(
        **refused, **between, round=1, direction="vertical", a="op8", b="op10", shared_bytes=activation
    )
    yield r.FusionDecision(
        **refused,
        round=1,
        direction="horizontal",
        a="op7",
        b="op8",
        refused_by="CppScheduling.can_fuse_horizontal",
        shared_bytes=activation,
    )
    for index in range(0, 6, 2):
        library: dict[str, Any] = {
            "reason_code": "extern",
            "reason": "node1 is a library call",
            "refused_by": "Scheduler.can_fuse",
        }
        yield r.FusionDecision(
            **refused,
            **library,
            round=1,
            direction="vertical",
            a=f"op{index}",
            b=f"op{index + 1}",
            shared_bytes=activation,
        )
    yield r.FusionDecision(
        graph_id=graph,
        round=2,
        a="op5",
        b="op7",
        direction="horizontal",
        verdict="legal",
        score_memory=0,
        rank=3,
        shared_bytes=0,
    )
    for index, members in enumerate(_groups()):
        kind = "fused" if len(members) > 1 else "single"
        yield r.FusionGroup(graph_id=graph, group_id="_".join(members), members=members, position=index, kind=kind)
    yield r.Reordering(graph_id=graph, pass_name="reorder_for_peak_memory", before=(), after=())


def _groups() -> list[tuple[str, ...]]:
    return [*((f"op{index}",) for index in range(7)), ("op7", "op8", "op9", "op10")]


def _kernels(graph: str, activation: int, row: int) -> Iterator[Any]:
    names = ("extern_kernels.addmm", "cpp_fused_relu_0", "cpp_fused__softmax_1")
    gemm, relu, softmax = (f"{graph}/{name}" for name in names)
    head, loop = (
        "#include <torch/csrc/inductor/cpp_prefix.h>",
        "for (int64_t x0 = 0; x0 < 32768L; x0 += 16L) { /* … */ }",
    )
    source = f'{head}\nextern "C" void kernel(float* in_out_ptr0)\n{{\n    {loop}\n}}\n'
    weights = HIDDEN * (HIDDEN + 1) * 4
    read = {gemm: activation + weights, relu: activation, softmax: activation}
    written = {gemm: activation, relu: activation, softmax: activation + 2 * row}
    flops = {gemm: activation // 2 * HIDDEN}
    for name, kernel in zip(names, read, strict=True):
        yield r.Kernel(
            kernel_id=kernel,
            graph_id=graph,
            name=name,
            backend="extern" if kernel == gemm else "cpp",
            source=None if kernel == gemm else source,
            bytes_read=read[kernel],
            bytes_written=written[kernel],
            flops=flops.get(kernel),
        )
    calls = [gemm, relu] * (LAYERS - 1) + [gemm, softmax]
    steps = [step for step, line in enumerate(_wrapper()) if line.startswith(("extern_kernels", "cpp_fused"))]
    for position, (kernel, members, step) in enumerate(zip(calls, _groups(), steps, strict=True)):
        yield r.KernelCall(
            graph_id=graph,
            position=position,
            kernel_id=kernel,
            group_ids=("_".join(members),),
            step=step,
            line=step + 2,
            bytes_read=read[kernel],
            bytes_written=written[kernel],
            moved=read[kernel] + written[kernel],
            flops=flops.get(kernel),
        )


def _wrapper() -> list[str]:
    return [
        "buf0 = empty_strided_cpu((64, 512), (512, 1), torch.float32)",
        "extern_kernels.addmm(arg1_1, arg0_1, weight_0, alpha=1, beta=1, out=buf0)",
        "buf1 = buf0; del buf0  # reuse",
        "cpp_fused_relu_0(buf1)",
        "buf2 = empty_strided_cpu((64, 512), (512, 1), torch.float32)",
        "extern_kernels.addmm(arg3_1, buf1, weight_1, alpha=1, beta=1, out=buf2)",
        "buf3 = buf2; del buf2  # reuse",
        "cpp_fused_relu_0(buf3)",
        "buf4 = buf1; del buf1  # reuse",
        "extern_kernels.addmm(arg5_1, buf3, weight_2, alpha=1, beta=1, out=buf4)",
        "buf5 = buf4; del buf4  # reuse",
        "cpp_fused_relu_0(buf5)",
        "buf6 = buf3; del buf3  # reuse",
        "extern_kernels.addmm(arg7_1, buf5, weight_3, alpha=1, beta=1, out=buf6)",
        "buf7 = empty_strided_cpu((64, 1), (1, 64), torch.float32)",
        "buf9 = empty_strided_cpu((64, 1), (1, 64), torch.float32)",
        "buf10 = buf5; del buf5  # reuse",
        "cpp_fused__softmax_1(buf6, buf7, buf9, buf10)",
        "del buf6",
        "del buf7",
        "del buf9",
        "return (buf10, )",
    ]


# buffer -> step of allocation, last use, step of release (None: it outlives the call), buffer taken over, how
_LIVES: dict[str, tuple[int, int, int | None, str | None, str | None]] = {
    "buf0": (0, 1, 2, None, None),
    "buf1": (2, 5, 8, "buf0", "in_place"),
    "buf2": (4, 5, 6, None, None),
    "buf3": (6, 9, 12, "buf2", "in_place"),
    "buf4": (8, 9, 10, "buf1", "pool"),
    "buf5": (10, 13, 16, "buf4", "in_place"),
    "buf6": (12, 17, 18, "buf3", "pool"),
    "buf7": (14, 17, 19, None, None),
    "buf9": (15, 17, 20, None, None),
    "buf10": (16, 21, None, "buf5", "pool"),
}


def _buffers(graph: str, batch: int, activation: int, row: int) -> Iterator[r.Buffer]:
    shape = (str(batch), str(HIDDEN))
    yield r.Buffer(
        graph_id=graph, buffer="arg0_1", category="input", bytes=activation, shape=shape, dtype="float32", last_use=1
    )
    for layer in range(LAYERS):
        yield r.Buffer(
            graph_id=graph,
            buffer=f"weight_{layer}",
            category="weight",
            bytes=HIDDEN * HIDDEN * 4,
            shape=("512", "512"),
            dtype="float32",
            last_use=1 + 4 * layer,
        )
    for buffer, (allocated, last_use, freed, reuses, kind) in _LIVES.items():
        per_row = buffer in ("buf7", "buf9")
        index = int(buffer[3:])
        kernel = "cpp_fused__softmax_1" if index > 6 else "cpp_fused_relu_0" if index % 2 else "extern_kernels.addmm"
        yield r.Buffer(
            graph_id=graph,
            buffer=buffer,
            category="output" if freed is None else "intermediate",
            bytes=row if per_row else activation,
            shape=(str(batch), "1") if per_row else shape,
            dtype="float32",
            allocated_at=allocated,
            last_use=last_use,
            freed_at=freed,
            reuses=reuses,
            reuse_kind=kind,
            ir_node=f"op{index}",
            kernel_id=f"{graph}/{kernel}",
        )


def _plan(graph: str, activation: int, row: int) -> Iterator[Any]:
    base = activation + LAYERS * HIDDEN * (HIDDEN + 1) * 4
    deltas = {
        0: ("buf0", activation),
        4: ("buf2", activation),
        14: ("buf7", row),
        15: ("buf9", row),
        18: ("buf6", -activation),
        19: ("buf7", -row),
        20: ("buf9", -row),
    }
    live = 0
    for step, label in enumerate(_wrapper()):
        buffer, delta = deltas.get(step, (None, 0))
        live += delta
        yield r.MemoryPoint(
            graph_id=graph,
            basis="plan",
            variant="compiled",
            step=step,
            live_bytes=live,
            base_bytes=base,
            buffer=buffer,
            delta_bytes=delta,
            label=label,
        )
    estimate = [
        activation,
        *[2 * activation] * 6,
        activation + row,
        2 * activation + row,
        activation + row,
        2 * activation + row,
    ]
    for step, live in enumerate(estimate):
        yield r.MemoryPoint(
            graph_id=graph,
            basis="estimate",
            variant="compiled",
            step=step,
            live_bytes=live,
            base_bytes=base,
            buffer=f"buf{step}",
        )
    for method, extra in {"as_given": 0, "lpmf": 0, "bfs": row, "dfs": row}.items():
        yield r.MemoryOrder(
            graph_id=graph, method=method, peak_bytes=max(estimate) + extra, chosen=method == "as_given"
        )
