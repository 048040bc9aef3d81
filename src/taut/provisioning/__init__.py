"""
How many nodes to train on: the cheapest, the fewest or the fastest, with a bound over all numbers of nodes.

``provision`` holds :func:`taut.provision`: begin there. ``goal`` says what a step is worth, ``node_count`` what is
known of one number of nodes, ``result`` what is returned.
"""
