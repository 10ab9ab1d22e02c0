"""Why a pair was not fused: a stable code for each of torch's refusals, with a plain sentence and often a remedy.

"The first" and "the second" are a and b of the decision; where one needs the other's result, the first is the producer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Reason:
    """A refusal in plain words, and what torch says (`*` for what varies) or which predicate refuses without a word."""

    known_by: tuple[str, ...]
    sentence: str
    advice: str | None = None


REASONS: dict[str, Reason] = {
    # torch/_inductor/scheduler.py: Scheduler.can_fuse_vertical and will_fusion_create_cycle
    "intermediate_nodes": Reason(
        ("intermediate nodes between node1 & node2",),
        "A node outside the pair stands in between: it needs the first one's result, and the second needs its own.",
        "Look at the later rounds: once that node is in one of the two groups, the pair may be legal.",
    ),
    "memory_deps_mismatch": Reason(
        ("memory deps did not match",),
        "The second reads the first one's buffer in another order, or in other loops, than the first writes it.",
        "It can be fused where both walk the buffer alike: without a transpose, slice or reduction in between.",
    ),
    "cycle": Reason(
        ("will create cycle",),
        "As one kernel the two would both need and feed another group, so neither could run first.",
    ),
    # torch/_inductor/choices.py: InductorChoices.can_fuse and can_fuse_horizontal
    "no_shared_data": Reason(
        ("no shared data",),
        "The two touch no buffer in common, or index it differently: fusing them would save no memory traffic.",
        "torch._inductor.config.aggressive_fusion = True fuses pointwise loops all the same.",
    ),
    "indexing_mismatch": Reason(
        ("no shared data due to indexing mismatch",),
        "The two touch a buffer in common, but index it differently, so that nothing read once serves both.",
        "Give both the same layout, for example with .contiguous() in one place before them.",
    ),
    "memory_threshold": Reason(
        ("score_fusion_memory_threshold",),
        "The two share so few bytes that a fusion is not worth its while.",
        "Lower torch._inductor.config.score_fusion_memory_threshold.",
    ),
    "fusion_cap": Reason(
        ("exceeds max fusion",),
        "Together they would hold more nodes than torch._inductor.config.max_fusion_size allows.",
        "Raise torch._inductor.config.max_fusion_size.",
    ),
    "peak_memory": Reason(
        ("Fusion will increase peak memory",),
        "Apart, the two reuse memory that must be held at once when fused: too much for the traffic that fusing saves.",
    ),
    "too_far": Reason(
        ("Nodes are too far away. Fusing them may increase peak memory.",),
        "The two stand more than 64 nodes apart in the graph: fusing them could keep buffers alive for long.",
        "Compute them next to each other in the model.",
    ),
    "too_many_buffers": Reason(
        ("fusion_prevent_too_many_reads_and_writes",),
        "The kernel would read and write more buffers than torch._inductor.config.max_fusion_unique_io_buffers allows.",
        "Raise torch._inductor.config.max_fusion_unique_io_buffers, or set it to None.",
    ),
    # torch/_inductor/scheduler.py: Scheduler.can_fuse
    "wrong_order": Reason(
        ("node1 must go before node2",),
        "The first needs the second one's result: the pair was asked the wrong way round.",
    ),
    "nop": Reason(("node1 is nop",), "The first runs nothing, so there is no loop to fuse with."),
    "extern": Reason(
        ("node1 is extern or nop", "node1 is extern but not a triton kernel", "node2 is extern or nop"),
        "One of the two calls a library kernel, which Inductor cannot put anything into (or it runs nothing at all).",
        'mode="max-autotune" may replace a matrix product or a convolution by a template that can be fused.',
    ),
    "grouped_node": Reason(
        ("grouped node must not be fused with other nodes",),
        "One of the two is a group that a scheduling pass keeps together, closed to other nodes.",
    ),
    "device_mismatch": Reason(
        ("device mismatch (*",),
        "The two run on different devices.",
        "Compute both on one device.",
    ),
    "no_fuse_buffer": Reason(
        ("fusion for buffer explicit disabled",),
        "A buffer of the pair was marked as not to be fused: it feeds a collective that should start early.",
        "torch marks it where torch._inductor.config.reorder_for_compute_comm_overlap is on.",
    ),
    "strict_sum": Reason(
        (
            "template fusion does not preserve strict sum ordering",
            "reduction fusion does not preserve strict sum ordering",
        ),
        'torch._inductor.config.numerics = "strict" fixes the order in which a sum is added up, and fusing changes it.',
        'torch._inductor.config.numerics = "default" allows it.',
    ),
    # the same function: a Triton kernel of the user's own is the first
    "user_kernel": Reason(
        ("node1's triton kernel doesn't support epilogue fusion",),
        "The first is a Triton kernel of the user's own that Inductor may not put an epilogue into.",
        "Set torch._inductor.config.epilogue_fusion_user_defined_triton_kernel = True; "
        "the kernel must store once, into a new torch.empty.",
    ),
    "user_kernel_consumer": Reason(
        (
            "node1 is extern but node2 is not SchedulerNode",
            "node1 is extern but node2.node is not SchedulerNode",
            "node1 is extern but node2.node.data is not Pointwise",
        ),
        "The first is a Triton kernel of the user's own, and only a single pointwise loop can be its epilogue.",
    ),
    "user_kernel_reads": Reason(
        (
            "epilogue is not a unary read of the output buffer",
            "epilogue reads from buffers other than the mutated output",
        ),
        "The epilogue of a Triton kernel of the user's own may read nothing but the kernel's output.",
    ),
    "user_kernel_layout": Reason(
        ("epilogue's read and write indices differ", "node1 and node2 uses different buf layouts"),
        "The epilogue of a Triton kernel of the user's own must write in the layout in which it reads.",
    ),
    # the same function: the second is a template, and the first its prologue
    "prologue_off": Reason(
        ("prologue fusion turned off",),
        "Nothing may be fused in front of this template.",
        "torch._inductor.config.prologue_fusion = True allows it where the template itself does.",
    ),
    "prologue_not_pointwise": Reason(
        ("prologue fusion only supported for pointwise nodes",),
        "Only pointwise loops can be fused in front of a template; the first is a reduction or a template itself.",
    ),
    "prologue_unsupported": Reason(
        (
            "prologue fusion only supported for TritonTemplates",
            "template has no allowed prologue inputs",
            "prologue fusion not implemented for kernel for these inputs",
        ),
        "The template takes no prologue for this input.",
    ),
    "prologue_mutation": Reason(
        ("template prologue can only fuse functional pointwise nodes",),
        "One of the two changes or aliases a buffer, which cannot be fused in front of a template.",
        "Write the operation out of place.",
    ),
    "prologue_several_uses": Reason(
        (
            "template prologue can only fuse nodes with a single use",
            "template prologue can only fuse nodes with a single use into template",
        ),
        "The first one's result is used elsewhere too, so that it must be written out anyway.",
    ),
    "prologue_more_reads": Reason(
        ("prologue fusion will not increase amount of bytes read in kernel",),
        "The first reads more bytes than it writes: inside the template they would be read again for every tile.",
    ),
    "prologue_padding": Reason(
        ("prologue fusion will not increase attempt to fuse in padding bc it increases unaligned reads",),
        "The first only pads; inside the template its reads would no longer be aligned.",
        "Choose sizes that need no padding.",
    ),
    "prologue_upcast": Reason(
        ("prologue fusion that must be upcast to fp32 not profitable for low precision templates",),
        "The first must compute in float32, which slows down a template that works in a smaller type.",
    ),
    "prologue_size": Reason(
        ("numel/rnumel mismatch prologue mismatch (*",),
        "The first has another size than the loops already fused in front of this template.",
    ),
    # the same function: the first is a template, and the second its epilogue
    "epilogue": Reason(
        ("template epilogue not satisfied",),
        "The second cannot follow inside the template: it mutates a buffer, reduces, or epilogues are turned off.",
        "Epilogue fusion needs torch._inductor.config.epilogue_fusion = True and an out-of-place pointwise operation.",
    ),
    "epilogue_not_computed": Reason(
        ("multi-output template epilogue requires ComputedBuffer", "* is not a ComputedBuffer"),
        "The second has no loop of its own that could follow inside the template.",
    ),
    # torch/_inductor/codegen/cutlass/scheduling.py: CUTLASSScheduling._can_fuse_epilogue_impl
    "cutlass_off": Reason(
        ("cutlass epilogue fusion is not enabled",),
        "The first is a CUTLASS template, and its epilogues are turned off.",
        "Set torch._inductor.config.cutlass.cutlass_epilogue_fusion_enabled = True (CUTLASS_EPILOGUE_FUSION=1).",
    ),
    "cutlass_no_tma": Reason(
        ("epilogue fusion is only supported for TMA-enabled gemm ops",),
        "The chosen CUTLASS kernel uses no TMA, without which it takes no epilogue.",
        "Set torch._inductor.config.cutlass.cutlass_tma_only = True.",
    ),
    "cutlass_not_pointwise": Reason(
        ("* is not a Pointwise op", "* is a reduction which is not yet supported by EVT"),
        "Only pointwise operations can be the epilogue of a CUTLASS template.",
    ),
    "cutlass_unnamed": Reason(
        ("* does not have a computed buffer name",),
        "The second writes no buffer that the CUTLASS epilogue could name.",
    ),
    "cutlass_size": Reason(
        ("*'s size: * differs from *'s size: *",),
        "The second has another shape than the output of the CUTLASS template.",
    ),
    "cutlass_mutation": Reason(
        ("* has aliasing or mutation",),
        "The second changes or aliases a buffer, which a CUTLASS epilogue cannot.",
        "Write the operation out of place.",
    ),
    "cutlass_unsupported": Reason(
        ("Cannot fuse epilogue node * into *",),
        "CUTLASS epilogues know no such operation or type.",
    ),
    "cutlass_layout": Reason(
        ("external read * non-contiguous compatible reshape of template size *",),
        "The epilogue reads a tensor that is not contiguous and has another shape than the template's output.",
        "Make that tensor contiguous.",
    ),
    # torch/_inductor/codegen/simd.py: SIMDScheduling.can_fuse, for Triton
    "reduction_sizes": Reason(
        ("numel/rnumel mismatch (reduce) (*",),
        "The two reduce over different sizes, so that no one loop nest fits both.",
    ),
    "loop_sizes": Reason(
        ("numel/rnumel mismatch (non-reduce) (*",),
        "The two loops run over different numbers of elements.",
    ),
    "loop_and_reduction_sizes": Reason(
        ("nodes numel incompatibility", "nodes numel/rnumel incompatibility"),
        "The loop fits neither the elements that the reduction reads nor the results that it writes.",
    ),
    "tiling_mismatch": Reason(
        ("tiling mismatch (*",),
        "The two want their elements walked in different tiles, so that one kernel would read one of them badly.",
        "torch._inductor.config.triton.tiling_prevents_pointwise_fusion = False fuses them all the same.",
    ),
    "reduction_tiling": Reason(
        ("invalid tiling for reduction",),
        "The loop wants its elements walked in tiles that the reduction's kernel cannot have.",
        "torch._inductor.config.triton.tiling_prevents_reduction_fusion = False fuses them all the same.",
    ),
    "native_matmul": Reason(
        ("invalid loop order and tiling for native matmul",),
        "One of the two is a matrix product in Inductor's own loops, whose order does not fit the other.",
    ),
    "split_scan": Reason(
        ("Split scan cannot fuse with reductions",),
        "One of the two is a scan split over several blocks, which holds no reduction.",
    ),
    # torch/_inductor/scheduler.py: ForeachKernelSchedulerNode.can_fuse
    "foreach_length": Reason(
        ("foreach do not have same length",),
        "The two are foreach operations over lists of different length.",
    ),
    "foreach_reduction": Reason(
        ("candidate * is a reduction, foreach ops cannot be fused with reductions currently",),
        "One of the two is a foreach operation, which takes in no reduction.",
    ),
    "foreach_unrelated": Reason(
        (
            "candidate producer is not dep of any foreach consumer",
            "candidate consumer has no dep in any foreach producer",
        ),
        "No tensor of the foreach operation's list depends on the other of the two.",
    ),
    # torch/_inductor/scheduler.py: speedup_by_fusion, with torch._inductor.config.benchmark_fusion
    "register_spill": Reason(
        ("register spilling of the * kernel",),
        "Benchmarked, one of the kernels needs more registers than there are and spills into memory.",
    ),
    "slower_fused": Reason(
        ("Scheduler.benchmark_codegened_module",),
        "Benchmarked, the fused kernel took as long as the two apart, or longer.",
    ),
    "not_worth_a_benchmark": Reason(
        ("Scheduler.speedup_by_fusion",),
        "Inductor turned the pair down without a time of the fused kernel: it would be a prologue and those are not "
        "benchmarked, the template is too slow even if the other node cost nothing, or the fused kernel spills "
        "registers or could not be compiled.",
    ),
    # Predicates that refuse without a word
    "mix_order_full": Reason(
        ("FusedMixOrderReductions.can_fuse_with",),
        "One of the two is a group of reductions in different orders. It takes a node in only where that node follows "
        "one of its reductions alone and shares enough with it, and the kernel reads no more buffers than "
        "torch._inductor.config.triton.mix_order_reduction_max_reads allows.",
    ),
    "nested_full": Reason(
        ("FusedNestedReductions.can_fuse_with",),
        "One of the two is a reduction nested in another. It takes in only loops behind the inner one that run over "
        "all its elements or over its results.",
    ),
    "cpp_horizontal": Reason(
        ("CppScheduling.can_fuse_horizontal",),
        "The C++ backend fuses neighbours only where their loop ranges agree, neither is a template, and together they "
        "hold no more than torch._inductor.config.cpp.max_horizontal_fusion_size nodes.",
        "Give both the same shape, or raise torch._inductor.config.cpp.max_horizontal_fusion_size.",
    ),
    "cpp_vertical": Reason(
        ("CppScheduling.can_fuse_vertical",),
        "The C++ backend fuses a consumer only where their loops agree: not behind a full reduction, "
        "not in front of a template, and no reduction behind one.",
    ),
    "triton_backend": Reason(
        ("SIMDScheduling.can_fuse*",),
        "The Triton backend refused the pair without saying why.",
    ),
    "cuda_template": Reason(
        ("CUDACombinedScheduling.can_fuse*",),
        "One of the two is a CUDA template (CUTLASS, CuteDSL, NVGEMM) that cannot be fused with the other.",
    ),
    "heuristics": Reason(
        ("InductorChoices.can_fuse*",),
        "The fusion heuristics in use refused the pair without saying why.",
    ),
    "scheduler": Reason(
        ("Scheduler.can_fuse*",),
        "The scheduler refused the pair without saying why, as it does for nodes of different streams or memory pools "
        "and for kinds of fused nodes that take nothing more in.",
    ),
    # pairs that were never tested: torch says nothing, so these are known by their code alone
    "library_call": Reason(
        (),
        "Never tested: one of the two is a library call, which the scheduler leaves out of every pairing.",
        "Only a template can take in its neighbours: try mode='max-autotune' for the matrix products.",
    ),
    "no_work": Reason(
        (),
        "Never tested: one of the two does no work of its own, such as an item of a library call's result.",
    ),
    "too_many_users": Reason(
        (),
        "Never tested: of the many users of one buffer, the scheduler pairs only those close to each other.",
        "The window is torch._inductor.config.max_fusion_buffer_group_pairwise_attempts.",
    ),
    "other": Reason(("*",), "torch's own words are all that is known about this refusal."),
}

_PATTERNS = [(re.compile(translate(words)), code) for code, reason in REASONS.items() for words in reason.known_by]


@lru_cache(maxsize=4096)
def reason_code(text: str | None, refused_by: str | None) -> str:
    """The code of a refusal, by torch's words or else by the predicate that refused; "other" for an unknown one."""
    said = text or refused_by or ""
    return next(code for pattern, code in _PATTERNS if pattern.match(said))
