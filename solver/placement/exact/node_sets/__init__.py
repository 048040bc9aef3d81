"""Bound ``node-sets``: the set of nodes of every stage, with all rings and pipelines."""
