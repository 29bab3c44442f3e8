"""What a model is: files, formats, hyper-parameters, architectures, vocabularies, templates, the catalog.

Knows nothing of kernels, devices, sessions or screens.
"""
