"""Papers' searches and predictions beside their published measurements, one module a paper."""
