"""How an operation runs on an NVIDIA GPU."""
