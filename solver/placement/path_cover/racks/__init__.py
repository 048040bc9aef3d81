"""
Racks, told apart in the bounds of pipelines that cover a cluster.

``visits`` finds racks and counts how often pipelines go from one to another, ``spanning`` says which stages lie in one
rack and what the ring of one that spans racks takes, ``crossings`` bounds the longest pipeline by the hops that lead
from rack to rack.
"""
