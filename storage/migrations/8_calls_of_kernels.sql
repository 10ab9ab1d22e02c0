-- What one call of a kernel moves and computes: a library kernel is one kernel whatever its shapes.
ALTER TABLE kernel_calls ADD COLUMN bytes_read BIGINT;  -- whole size of each buffer that it reads
ALTER TABLE kernel_calls ADD COLUMN bytes_written BIGINT;  -- whole size of each buffer that it writes
ALTER TABLE kernel_calls ADD COLUMN moved BIGINT;  -- the least that it has to read and write: each buffer once, accessed parts only
ALTER TABLE kernel_calls ADD COLUMN flops BIGINT;  -- summed over its scheduler nodes
