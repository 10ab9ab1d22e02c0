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

-- One row per keeping of a page's filters under a name; of several under one name the last counts. It is of no run.
CREATE TABLE saved_views (
    name VARCHAR NOT NULL,
    created_at TIMESTAMP,  -- UTC
    author VARCHAR,
    page VARCHAR,  -- path of the page, "" for the runs
    query VARCHAR  -- of the address, e.g. "project=search&status=failed"; NULL: the view was given up
);
