-- One row per note on a run or an object in it, or act upon the run; never changed, only followed by others.
CREATE TABLE notes (
    run_id VARCHAR NOT NULL,
    note_id VARCHAR,
    created_at TIMESTAMP,  -- UTC
    author VARCHAR,
    act VARCHAR,  -- note, withdraw; to the run: rename, tag, untag, archive, unarchive, delete, restore
    anchor_kind VARCHAR,  -- run, kernel, fusion_group, refusal, buffer, peak, finding
    anchor VARCHAR,  -- JSON: what the object is made of, by which other runs know it; NULL: the run itself
    object_id VARCHAR,  -- how this run names the object, e.g. "0/0.forward/op3"
    label VARCHAR,  -- what the object is, in a few words
    verdict VARCHAR,  -- looks_good, needs_work, regression
    text VARCHAR  -- of a note; of other acts their object: the new name, the tag, the note taken back
);

-- One row per run: its headline, worked out once when it is imported.
CREATE TABLE summaries (
    run_id VARCHAR NOT NULL, compiles BIGINT,
    breaks BIGINT, recompiles BIGINT,  -- NULL where torch's trace, which tells of them, was not recorded
    graphs BIGINT,  -- that reached Inductor
    kernel_calls BIGINT,  -- calls in the emitted wrappers; NULL when no graph reached Inductor
    refusals BIGINT,  -- pairs that were tested and not fused
    spill_bytes BIGINT,  -- of every Triton kernel in its fullest configuration; NULL where not known of all
    eager_us DOUBLE, compiled_us DOUBLE,  -- latency
    eager_kernels DOUBLE, compiled_kernels DOUBLE,  -- per call of the model
    eager_peak_bytes DOUBLE, compiled_peak_bytes DOUBLE,
    plan_peak_bytes BIGINT,  -- the largest of the plans
    within_noise BOOLEAN,  -- the 10–90 % intervals of both latencies overlap; NULL where one has none
    problems BIGINT,  -- findings that failed and are no mere note
    worst VARCHAR,  -- title of the first of them
    facts BIGINT  -- rows that were recorded: the run's share of the library
);

-- One row per keeping of a page's filters under a name; of several under one name the last counts. It is of no run.
CREATE TABLE saved_views (
    name VARCHAR NOT NULL,
    created_at TIMESTAMP,  -- UTC
    author VARCHAR,
    page VARCHAR,  -- path of the page, "" for the runs
    query VARCHAR  -- of the address, e.g. "project=search&status=failed"; NULL: the view was given up
);
