"""
How many nodes to train on: the cheapest, the fewest or the fastest, with a bound over all numbers of nodes.

``provision`` holds :func:`taut.provision`: begin there. ``node_count`` says what a step is worth, what is known of one
number of nodes, and what is returned.
"""
