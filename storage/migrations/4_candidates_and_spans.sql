-- One row per value that two graphs of one compilation hold, by the name that each gives it.
CREATE TABLE node_links (
    run_id VARCHAR NOT NULL, graph_a VARCHAR,
    node_a VARCHAR,  -- in the earlier stage; for a value that the backward needs, in the forward
    graph_b VARCHAR, node_b VARCHAR
);

-- One row per pass that could change the order of the schedule, or changed the loops of a scheduler node.
CREATE TABLE reorderings (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    pass_name VARCHAR,  -- torch's function, reorder_for_peak_memory, …; of loops: loop_ordering_after_fusion, …
    subject VARCHAR,  -- scheduler node whose loops changed; NULL: the schedule as a whole
    before VARCHAR[],  -- groups by name, or loops by place and length (d0=64); empty: the pass ran and changed nothing
    after VARCHAR[]
);

-- One row per candidate that Inductor weighed for an operation that a library or a template can compute.
CREATE TABLE gemm_choices (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    op VARCHAR,  -- as Inductor names it: mm, addmm, convolution, …
    node VARCHAR,  -- FX node being lowered
    shapes VARCHAR,  -- of its inputs, e.g. "64x512, 512x512"
    choice VARCHAR,  -- name of the candidate
    kind VARCHAR,  -- library, triton, cpp, subgraph, other
    config VARCHAR,  -- of a template: e.g. "BLOCK_M=64 BLOCK_N=64 num_warps=4"
    time_us DOUBLE,  -- benchmarked by the autotuner; NULL: not benchmarked, or it failed
    chosen BOOLEAN,  -- NULL: undecided without the hardware
    error VARCHAR  -- why it could not run, in one line
);

-- One row per span of a profiled call of the model: what the host issued and what the device ran.
CREATE TABLE timeline (
    run_id VARCHAR NOT NULL,
    variant VARCHAR,  -- eager, compiled, …
    lane VARCHAR,  -- host, device
    name VARCHAR,
    start_us DOUBLE,  -- since the call began
    end_us DOUBLE,
    kernel_id VARCHAR,
    op VARCHAR  -- operator that launched it
);

-- single (one node); fused (pairs, one after the other); mix_order (its reductions run in different orders); nested
-- (one reduction feeds another over the same elements); foreach (a torch._foreach_* operation); combo (independent
-- groups in one kernel: config.combo_kernels). NULL: recorded before kinds were.
ALTER TABLE fusion_groups ADD COLUMN kind VARCHAR;
-- Why a graph of this stage could not be made (its code is NULL then), or in what it does not hold: branches that tracing fixed.
ALTER TABLE graphs ADD COLUMN reason VARCHAR;
-- Rates that were measured on the device itself, and how.
ALTER TABLE device_facts ADD COLUMN copy_gbps DOUBLE;
ALTER TABLE device_facts ADD COLUMN matmul_tflops DOUBLE;
ALTER TABLE device_facts ADD COLUMN method VARCHAR;
-- How a GPU multiplies float32, as set when the run ended: ieee, tf32.
ALTER TABLE runs ADD COLUMN fp32_matmul VARCHAR;
-- Operator that launched the kernel; NULL for a generated kernel.
ALTER TABLE kernel_timings ADD COLUMN op VARCHAR;
-- Whether Inductor launches the binary by itself (StaticallyLaunchedCudaKernel), without Triton's Python.
ALTER TABLE kernel_configs ADD COLUMN static_launcher BOOLEAN;
-- Why it is not known how often a graph break ran.
ALTER TABLE graph_breaks ADD COLUMN executions_reason VARCHAR;
