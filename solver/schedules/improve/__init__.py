"""Improvement of schedules: critical-path neighbourhoods, and CP-SAT on small pipelines."""
