"""Many prompts in one run: rows in, rows out, batched, and gone on with where they were broken off."""
