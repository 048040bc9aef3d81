"""Inputs as graphs of networkx: ``cluster_graph`` has the links of a cluster."""
