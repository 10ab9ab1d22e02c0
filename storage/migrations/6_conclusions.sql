-- One row per rule and run: what it concludes from the recorded facts.
CREATE TABLE findings (
    run_id VARCHAR NOT NULL,
    finding_id VARCHAR,  -- the rule's code: a rule concludes once a run
    status VARCHAR,  -- failed, passed, not_applicable
    severity VARCHAR,  -- problem, note (informative)
    code VARCHAR, title VARCHAR,
    explanation VARCHAR,  -- one sentence with numbers; of what is not applicable the reason
    evidence VARCHAR[],  -- the facts behind it, most weighty first
    action VARCHAR,  -- what to change or try
    link VARCHAR  -- screen that shows it, e.g. "kernels?kernel=0/0.forward/triton_poi_0"
);

-- One row per operator of a module, direction and variant: the time that it takes of a call of the model.
CREATE TABLE op_costs (
    run_id VARCHAR NOT NULL,
    module_path VARCHAR,  -- e.g. layers.0.mlp; "" for the model's own forward; NULL outside of it or unknown
    op VARCHAR,  -- operator as eager calls it, e.g. aten::addmm; "unattributed KERNEL" where it is unknown
    direction VARCHAR,  -- forward, backward
    variant VARCHAR,  -- eager, compiled
    file VARCHAR, line BIGINT,  -- of the first node that computes it
    eager_us DOUBLE,  -- per call of the model, of variant eager
    compiled_us DOUBLE,  -- per call of the model, of variant compiled
    estimated BOOLEAN,  -- a kernel's time was shared among several operators by the bytes and flops of each
    eager_kernels DOUBLE,  -- per call of the model
    kernel_ids VARCHAR[]  -- kernels that compute it, of variant compiled
);

-- Operator of the program that a node was decomposed from, e.g. aten::gelu.
ALTER TABLE graph_nodes ADD COLUMN original VARCHAR;
