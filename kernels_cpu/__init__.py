"""How an operation runs on a CPU: packing, kernels, the program executor and its threads."""
