"""
Lower bounds on a candidate.

``relaxation`` holds the closed forms and ``candidate_bounds`` the exact partition, ``communication`` the least
communication that both add, with ``least_hops`` and ``least_rings``, ``link_bounds`` the best that any placement can
get from the links, ``rack_cases`` tells the racks of a cluster apart, ``margin_free`` the global bound with the memory
margin set to zero.
"""
