"""Speculation: guessing the next tokens cheaply, so that the model checks several in one pass.

What is checked never changes what is said: the model's own choice of every token stands, and a guess only saves the
pass that would have computed it.  options.py is what a caller may choose; drafter.py the seam of those that guess;
suffix_index.py and ngram_drafter.py guess from the text so far, model_drafter.py with a small model;
pass_costs.py, acceptance.py and controller.py measure and decide; speculator.py joins them for the engine's loop.
"""
