"""
What is built in: YAML and CSV files with their sources, and the code that reads them.

``devices`` reads any section as plain values, and devices; ``builtin`` reads models, clusters, calibrations, operator
models, profiles and memory models. Stacks are read where they are defined, in ``taut.data.stack``.
"""
