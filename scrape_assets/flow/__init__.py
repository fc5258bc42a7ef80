"""The story, one verb a file: each owns its transactions and decides nothing."""
