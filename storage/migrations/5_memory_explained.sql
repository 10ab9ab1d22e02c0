-- One row per block of memory of a measured step, or that was there before it.
CREATE TABLE allocations (
    run_id VARCHAR NOT NULL,
    variant VARCHAR,  -- compiled, eager; of an imported snapshot: snapshot
    phase VARCHAR,  -- before, forward, backward, optimizer
    start_us DOUBLE,  -- since the step began; NULL: there before
    end_us DOUBLE,  -- NULL: outlives the step
    first_event BIGINT,  -- of the step's allocations and frees in order, as memory_points counts them
    last_event BIGINT,  -- at which it is freed
    bytes BIGINT,  -- as requested
    address BIGINT,
    category VARCHAR,  -- as of buffers
    graph_id VARCHAR,  -- whose wrapper allocated it
    buffer VARCHAR,  -- of that graph
    label VARCHAR,  -- the wrapper line, the operator, or the name of a parameter
    file VARCHAR, line BIGINT, source_text VARCHAR
);

-- One row per named part of a measured peak; those of one variant and graph add up to it.
CREATE TABLE memory_residuals (
    run_id VARCHAR NOT NULL, variant VARCHAR,
    graph_id VARCHAR,  -- empty: of the whole step
    name VARCHAR,  -- plan, workspace, rounding, …, unexplained
    bytes BIGINT, explanation VARCHAR
);

-- One row per memory budget of the partitioner, tried on a joint graph.
CREATE TABLE memory_budgets (
    run_id VARCHAR NOT NULL,
    graph_id VARCHAR,  -- "0/0.joint"
    budget DOUBLE,  -- torch._functorch.config.activation_memory_budget
    saved_bytes BIGINT,  -- forward values, without inputs
    saved_values BIGINT, recomputed_ops BIGINT, recomputed_flops BIGINT
);

-- One row per chance to put a buffer into memory that is there already.
CREATE TABLE reuse_decisions (
    run_id VARCHAR NOT NULL, graph_id VARCHAR,
    buffer VARCHAR,  -- that needs memory
    candidate VARCHAR,  -- whose memory could serve
    kind VARCHAR,  -- in_place, pool
    verdict VARCHAR,  -- taken, refused
    reason VARCHAR,  -- of a refusal
    bytes BIGINT
);

-- Why the size of a buffer is not known.
ALTER TABLE buffers ADD COLUMN reason VARCHAR;
