"""What all models are compared at."""

# Tokens of the request that the summary quotes, and the longest row of the mixed batches.
LENGTH = 128
# Rows of a mixed batch.
BATCH = 32
