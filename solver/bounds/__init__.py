"""
Lower bounds on a candidate.

``candidate_bounds`` holds the closed form and the exact partition, ``communication`` the least communication that both
add, ``link_bounds`` the best that any placement can get from the links, ``margin_free`` the global bound with the
memory margin set to zero.
"""
