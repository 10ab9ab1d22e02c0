-- One row per dynamic-shape symbol: what it stands for and what became of it.
CREATE TABLE symbols (
    run_id VARCHAR NOT NULL, compile_id VARCHAR,
    symbol VARCHAR,  -- s77; u0 when its value is known only at run time
    source VARCHAR,  -- what it stands for, e.g. L['x'].size()[0]
    hint VARCHAR,  -- its value at compile time
    range VARCHAR,  -- that it may lie in when it is made
    specialised_to VARCHAR,  -- the one value that it was fixed to
    reason VARCHAR,  -- why it was fixed, in torch's words
    file VARCHAR,  -- where it was fixed, else where it was made
    line BIGINT
);

-- One row per mutation that Dynamo replays after the graph has run, because it reaches beyond the frame.
CREATE TABLE side_effects (
    run_id VARCHAR NOT NULL, compile_id VARCHAR,
    kind VARCHAR,  -- e.g. "Mutating object of type list"
    target VARCHAR,  -- source of the object, e.g. L['self'].history
    file VARCHAR, line BIGINT
);

-- One row per forward value of a joint graph: whether the backward finds it saved, or computes it again.
CREATE TABLE partition_choices (
    run_id VARCHAR NOT NULL,
    graph_id VARCHAR,  -- "0/0.joint"
    node VARCHAR, saved BOOLEAN,
    recomputed BOOLEAN,  -- an operation of the forward that the backward repeats
    banned BOOLEAN,  -- from being computed again
    is_input BOOLEAN,  -- of the forward; inputs count as saved when the backward reads them
    bytes BIGINT,
    budget DOUBLE,  -- the memory budget that applied; 1: as fast as can be
    reason VARCHAR  -- why it is banned, in torch's words
);

-- One row per FX pass, or pattern of one, that changed a graph or came near to it.
CREATE TABLE pass_changes (
    run_id VARCHAR NOT NULL,
    graph_id VARCHAR,  -- of the stage that the pass belongs to
    pass_name VARCHAR,
    pattern VARCHAR,  -- NULL: the pass as a whole
    outcome VARCHAR,  -- applied, near_miss (nearly matched), vanished (asked for and gone)
    reason VARCHAR,  -- of what is not applied
    count BIGINT,  -- how often a pattern was applied, or nearly
    nodes_added BIGINT,  -- by a pass as a whole
    nodes_removed BIGINT,  -- by a pass as a whole; of a pattern: nodes matched
    duration_s DOUBLE  -- of a pass as a whole
);

-- One row per hint about performance that torch logged while compiling.
CREATE TABLE perf_hints (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, graph_id VARCHAR,
    node VARCHAR,  -- FX node being lowered
    text VARCHAR
);

-- One row per CUDA graph that was recorded, or reason for which none is used.
CREATE TABLE cudagraph_events (
    run_id VARCHAR NOT NULL, compile_id VARCHAR, graph_id VARCHAR,
    event VARCHAR,  -- recorded, recorded_again, skipped
    reason VARCHAR,  -- of a skip, in torch's words
    file VARCHAR,  -- of the operation to blame
    line BIGINT, count BIGINT,
    duration_s DOUBLE  -- of a recording
);

-- What Dynamo was tracing and what it does about the break, a line each.
ALTER TABLE graph_breaks ADD COLUMN context VARCHAR;
