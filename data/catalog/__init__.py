"""
Built-in inputs: YAML and CSV files with their sources, and the code that reads them.

``builtin`` reads models, clusters, stacks, calibrations, operator models, profiles and memory models: begin there.
``devices`` reads devices, and any section of a file as plain values.
"""
