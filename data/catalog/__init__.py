"""
What is built in: YAML and CSV files with their sources, and the code that reads them.

``devices`` reads any section as plain values, and devices; ``builtin`` reads models, clusters, stacks, calibrations,
operator models, profiles and memory models.
"""
