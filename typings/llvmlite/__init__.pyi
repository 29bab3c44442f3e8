"""llvmlite ships no types, and what a checker infers from its sources (every builder method gives None) is wrong."""
