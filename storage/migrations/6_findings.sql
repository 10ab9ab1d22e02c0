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
