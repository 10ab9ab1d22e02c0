-- One row per recorded run: one process that compiled something.
CREATE TABLE runs (
    run_id VARCHAR PRIMARY KEY, name VARCHAR, project VARCHAR, tags VARCHAR[],
    created_at TIMESTAMP,  -- UTC, without zone
    author VARCHAR,
    status VARCHAR,  -- complete, partial, failed
    status_reason VARCHAR,  -- one sentence where status is not complete
    source VARCHAR,  -- live, imported
    torch_version VARCHAR, triton_version VARCHAR, python_version VARCHAR, cuda_version VARCHAR, host VARCHAR,
    device_kind VARCHAR,  -- cpu, cuda, target
    device_name VARCHAR,
    threads BIGINT,  -- intra-op threads of torch
    mode VARCHAR,  -- torch.compile's mode
    dynamic BOOLEAN, rank BIGINT, world_size BIGINT,
    group_id VARCHAR,  -- shared by the ranks of one job
    git_commit VARCHAR, git_branch VARCHAR, git_dirty BOOLEAN, command VARCHAR, cwd VARCHAR,
    source_path VARCHAR,  -- the file given to `record` or `run`
    options VARCHAR,  -- JSON: what the run was recorded with
    fx_cache VARCHAR,  -- off, on
    kernel_cache VARCHAR,  -- cold, warm
    recorder_overhead_s DOUBLE,  -- time spent inside hooks and writing
    archived_at TIMESTAMP, deleted_at TIMESTAMP
);

-- One row per hook and run: what it managed to record.
CREATE TABLE hook_status (
    run_id VARCHAR NOT NULL, hook VARCHAR,
    state VARCHAR,  -- recorded, partial, unavailable, failed
    reason VARCHAR,
    recorded BIGINT,  -- observations taken
    lost BIGINT,  -- observations that raised
    self_s DOUBLE  -- time spent inside the hook
);

-- One row per frame compilation; of several attempts the last one.
CREATE TABLE compiles (
    run_id VARCHAR NOT NULL,
    compile_id VARCHAR,  -- frame/recompilation, as torch numbers them; "@1" is added after a torch._dynamo.reset()
    epoch BIGINT,  -- how often the numbering restarted before this compile
    phase VARCHAR,  -- drive: the user's own calls; measure: compiled again by measuring
    function VARCHAR, file VARCHAR, line BIGINT,
    outcome VARCHAR,  -- compiled, skipped, failed, limit
    reason VARCHAR, attempts BIGINT,
    backend VARCHAR,  -- that the captured graph was handed to
    resume_of VARCHAR,  -- name of the function that this frame resumes after a break
    recompile_of VARCHAR,  -- compile_id
    fx_key VARCHAR,
    cache_state VARCHAR,  -- hit, miss, bypass
    decisions_from_run VARCHAR,  -- run_id, when the decisions were recorded elsewhere
    start_s DOUBLE,  -- since the run began
    duration_s DOUBLE
);

-- One row per timed phase of a compilation.
CREATE TABLE compile_phases (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, phase_id BIGINT, name VARCHAR,
    parent BIGINT,  -- phase_id of the enclosing phase
    thread BIGINT,
    start_s DOUBLE,  -- since the run began
    duration_s DOUBLE
);

-- One row per lookup in one of torch's compile caches.
CREATE TABLE cache_events (
    run_id VARCHAR NOT NULL, compile_id VARCHAR,
    cache VARCHAR,  -- fx_graph, aotautograd, …
    key VARCHAR,
    state VARCHAR,  -- hit, miss, bypass
    reason VARCHAR, saved_s DOUBLE
);

-- One row per distinct place where Dynamo stopped tracing.
CREATE TABLE graph_breaks (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, file VARCHAR, line BIGINT,
    kind VARCHAR,  -- Dynamo's own name for the break, e.g. "Failed to trace builtin operator"
    reason VARCHAR, hint VARCHAR,
    executions BIGINT  -- how often the site ran
);

-- One row per pair (compilation, previous one whose guards failed).
CREATE TABLE recompiles (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, previous_compile_id VARCHAR, guard VARCHAR,
    guard_value VARCHAR, reason VARCHAR,
    outcome VARCHAR,  -- done, refused (the limit was reached)
    count BIGINT, compile_limit BIGINT
);

-- One row per condition that must hold for a compiled frame to be used again.
CREATE TABLE guards (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, expression VARCHAR,
    source VARCHAR,  -- what is guarded, e.g. L['x']
    file VARCHAR, line BIGINT
);

-- One row per graph at one stage of the stack; Inductor's own (stage post_grad) carry the decisions.
CREATE TABLE graphs (
    run_id VARCHAR NOT NULL,
    graph_id VARCHAR,  -- "0/0.forward", "0/0.backward", "0/0.inference" for Inductor; "0/0.dynamo", … for other stages
    compile_id VARCHAR,
    stage VARCHAR,  -- dynamo, pre_grad, joint, forward, backward, inference, post_grad
    direction VARCHAR,  -- forward, backward, inference (forward without gradients)
    fx_key VARCHAR,
    code VARCHAR,  -- the graph as readable text
    output_code VARCHAR,  -- Inductor's wrapper and kernels; stage post_grad only
    position BIGINT  -- order of compilation within the run
);

-- One row per FX node.
CREATE TABLE graph_nodes (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, node VARCHAR, position BIGINT,
    op VARCHAR,  -- placeholder, call_function, get_attr, output, …
    target VARCHAR, shape VARCHAR[], stride VARCHAR[], dtype VARCHAR, bytes BIGINT, flops BIGINT,
    module_path VARCHAR,  -- e.g. layers.0.mlp
    file VARCHAR, line BIGINT,
    source_text VARCHAR,  -- the text of that source line
    seq_nr BIGINT,  -- shared by a forward op and its backward
    recomputed BOOLEAN  -- a forward op computed again in the backward graph
);

-- One row per value that flows between two FX nodes.
CREATE TABLE graph_edges (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, src VARCHAR, dst VARCHAR
);

-- One row per producer with several users at lowering: given a buffer, or inlined in each user.
CREATE TABLE realize_decisions (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    node VARCHAR,  -- FX node of the producer
    users BIGINT,
    reads BIGINT,  -- buffers that the producer reads
    opcount BIGINT,  -- operations in its body
    threshold VARCHAR,  -- the limits that applied
    realized BOOLEAN, reason VARCHAR,
    bytes BIGINT,  -- size of the buffer, made or avoided
    copies BIGINT  -- scheduler nodes that compute it; more than one: computed again
);

-- One row per layout that Inductor changed, or copy that it inserted to change one.
CREATE TABLE layout_changes (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    node VARCHAR,  -- FX node being lowered
    kind VARCHAR,  -- copy_input, channels_last, freeze_layout, …
    is_copy BOOLEAN, from_stride VARCHAR[], to_stride VARCHAR[], bytes BIGINT, reason VARCHAR
);

-- One row per scheduler node before fusion.
CREATE TABLE ir_nodes (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    ir_node VARCHAR,  -- op0, op1, …
    kind VARCHAR,  -- pointwise, reduction, template, extern, nop
    target VARCHAR,  -- kernel that an extern node calls
    bytes_read BIGINT, bytes_written BIGINT, flops BIGINT,
    origins VARCHAR[],  -- FX nodes of the post_grad graph
    buffers VARCHAR[],  -- buffers that it writes
    position BIGINT
);

-- One row per buffer that one scheduler node writes and another reads.
CREATE TABLE ir_edges (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, src VARCHAR, dst VARCHAR, buffer VARCHAR, bytes BIGINT,
    materialised BOOLEAN  -- False: both ends share a group and the buffer was never allocated
);

-- One row per distinct pair of scheduler nodes or groups, tested in one round.
CREATE TABLE fusion_decisions (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    round BIGINT,  -- from 1
    a VARCHAR, b VARCHAR,
    direction VARCHAR,  -- vertical, horizontal, epilogue, prologue, mix_order
    verdict VARCHAR,  -- fused, legal (could have been), refused, untested
    reason_code VARCHAR,
    reason VARCHAR,  -- as torch logged it; None when it refused silently
    refused_by VARCHAR,  -- the predicate that said no
    score_template BIGINT, score_type BIGINT,
    score_memory BIGINT,  -- bytes saved
    score_overlap BIGINT, score_proximity BIGINT,
    rank BIGINT,  -- among the round's candidates, 0 is best
    order_taken BIGINT,  -- fused as the n-th of the graph, from 0
    result VARCHAR,  -- the group that came of it
    shared_bytes BIGINT,
    ms_before DOUBLE,  -- benchmarked fusion: separate
    ms_after DOUBLE,  -- benchmarked fusion: fused
    times_tested BIGINT
);

-- One row per group of scheduler nodes after the last round, in final schedule order.
CREATE TABLE fusion_groups (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    group_id VARCHAR,  -- the fused node's name; a single node's own name
    members VARCHAR[], position BIGINT
);

-- One row per generated kernel, or library kernel that the wrapper calls.
CREATE TABLE kernels (
    run_id VARCHAR NOT NULL, kernel_id VARCHAR, graph_id VARCHAR, name VARCHAR,
    backend VARCHAR,  -- triton, cpp, extern, template, user
    source VARCHAR,
    bytes_read BIGINT,  -- whole size of each buffer that its first call reads
    bytes_written BIGINT,  -- whole size of each buffer that its first call writes
    flops BIGINT  -- summed over the scheduler nodes of its first call
);

-- One row per call in the emitted wrapper, in order.
CREATE TABLE kernel_calls (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, position BIGINT, kernel_id VARCHAR, group_ids VARCHAR[],
    step BIGINT,  -- wrapper step, the x axis of the plan
    line BIGINT,  -- line of graphs.output_code, from 1
    grid VARCHAR
);

-- One row per measured kernel or library operator, and variant.
CREATE TABLE kernel_timings (
    run_id VARCHAR NOT NULL, name VARCHAR, kernel_id VARCHAR,
    variant VARCHAR,  -- eager, compiled
    calls BIGINT,  -- per call of the model
    median_us DOUBLE,  -- one call of the kernel
    total_us DOUBLE,  -- per call of the model
    method VARCHAR
);

-- One row per buffer of the emitted wrapper; steps index the wrapper's lines.
CREATE TABLE buffers (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, buffer VARCHAR,
    category VARCHAR,  -- input, weight, constant, intermediate, output, saved, gradient, optimizer, workspace
    bytes BIGINT, shape VARCHAR[], dtype VARCHAR,
    allocated_at BIGINT,  -- step; None for inputs, which exist before the call
    last_use BIGINT,
    freed_at BIGINT,  -- step; None when it outlives the call
    reuses VARCHAR,  -- buffer whose memory it took over
    reuse_kind VARCHAR,  -- in_place, pool
    ir_node VARCHAR,  -- scheduler node that writes it first
    kernel_id VARCHAR  -- kernel that writes it first
);

-- One row per step of a memory timeline.
CREATE TABLE memory_points (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    basis VARCHAR,  -- estimate, plan, measured
    variant VARCHAR,  -- compiled, eager
    step BIGINT, time_us DOUBLE,
    live_bytes BIGINT,  -- allocated above the entry of the call
    base_bytes BIGINT,  -- alive before the call: inputs and weights
    buffer VARCHAR, delta_bytes BIGINT,
    label VARCHAR  -- what happened: the wrapper line or the operator
);

-- One row per schedule order that Inductor weighed, with the peak that it estimated.
CREATE TABLE memory_orders (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    method VARCHAR,  -- as_given, lpmf, bfs, dfs, …, chosen
    peak_bytes BIGINT, chosen BOOLEAN
);

-- One row per measured quantity and variant of the model.
CREATE TABLE measurements (
    run_id VARCHAR NOT NULL,
    variant VARCHAR,  -- eager, compiled
    metric VARCHAR,  -- latency_us, kernels, peak_bytes, first_call_s, wall_s, peak_rss_bytes, …
    median DOUBLE, p10 DOUBLE, p90 DOUBLE, samples BIGINT,
    unit VARCHAR,  -- us, s, bytes, count
    discarded BIGINT,  -- samples thrown away
    reason VARCHAR,  -- why they were thrown away
    method VARCHAR  -- how it was measured, in one line
);

-- One row per counter that torch keeps while compiling.
CREATE TABLE counters (
    run_id VARCHAR NOT NULL, graph_id VARCHAR, name VARCHAR, value BIGINT
);
