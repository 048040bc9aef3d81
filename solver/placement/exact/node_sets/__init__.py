"""
Bound ``node-sets``: the set of nodes of every stage, with all rings and pipelines.

Begin with ``bound``. ``labels`` are its compiled loops, ``seconds`` the hops and rings that they add up.
"""
