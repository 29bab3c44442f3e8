"""One user's engine: memory, pages, scheduling, sampling, text, timings."""
