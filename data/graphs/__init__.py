"""What is known as graphs of networkx: ``cluster_graph`` has a cluster's links."""
