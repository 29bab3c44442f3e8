"""What a person touches: the command line, scripted generation, the chat, settings.

Knows the runtime's public names alone: no model files, no arrays, no kernels.
"""
