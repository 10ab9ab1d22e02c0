-- One row per GPU that the run used, or was recorded for without having one.
CREATE TABLE device_facts (
    run_id VARCHAR NOT NULL,
    name VARCHAR,  -- as --target names it
    product VARCHAR,  -- as torch.cuda.get_device_name gives it
    backend VARCHAR,  -- cuda, hip
    architecture VARCHAR,  -- sm_90, gfx942
    multiprocessors BIGINT, warp_size BIGINT, warps_per_multiprocessor BIGINT,
    shared_bytes_per_multiprocessor BIGINT, shared_bytes_per_block BIGINT, l2_bytes BIGINT, memory_bytes BIGINT,
    bandwidth_gbps DOUBLE,  -- of the memory, 10^9 bytes a second
    bf16_tflops DOUBLE,  -- dense, 10^12 operations a second
    fp32_tflops DOUBLE,
    clock_mhz BIGINT,  -- the highest
    source VARCHAR
);

-- One row per configuration in which a Triton kernel was compiled.
CREATE TABLE kernel_configs (
    run_id VARCHAR NOT NULL, kernel_id VARCHAR,
    config VARCHAR,  -- e.g. "XBLOCK=1024 num_warps=4 num_stages=1"; names it within its kernel
    num_warps BIGINT, num_stages BIGINT,
    grid VARCHAR,  -- blocks along x, y, z, e.g. "4096, 1, 1"; NULL where sizes are dynamic
    registers BIGINT,  -- a thread
    n_spills BIGINT,  -- as Triton reports it: local memory of a thread in words of 4 bytes
    spill_bytes BIGINT,  -- stores and loads of spilled registers a thread, as ptxas counts them
    shared_bytes BIGINT,  -- a block, asked for at launch
    static_shared_bytes BIGINT,  -- a block, besides, fixed in the binary
    occupancy DOUBLE,  -- theoretical: warps that fit, of those that a multiprocessor holds
    occupancy_limit VARCHAR,  -- what binds: registers, shared memory, warps, blocks
    chosen BOOLEAN,  -- NULL: undecided, only timing on the GPU can tell
    time_us DOUBLE,  -- benchmarked by the autotuner
    origin VARCHAR  -- heuristics; register_pressure: added since the registers of another one limit its occupancy;
    -- autotune_cache: the winner of an earlier contest; coordinate_descent, combo_autotune: tried on the way
);

-- One row per text that a Triton kernel became on its way to the binary, and configuration.
CREATE TABLE kernel_code (
    run_id VARCHAR NOT NULL, kernel_id VARCHAR, config VARCHAR,
    kind VARCHAR,  -- ttir, ptx, amdgcn, sass
    text VARCHAR
);
