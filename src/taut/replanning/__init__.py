r"""
A plan on what is left: without some nodes, with some nodes slower, or with spare nodes in their place.

A plan of B sequences a step runs on N nodes. Some nodes are lost, others run at a share f of their speed, and spare
nodes may stand by. A *slow* node has devices of a type of its own, whose layers and optimizer take 1 / f as long.

(1) A plan on what is left uses whole nodes. It need not use all: 127 nodes have few divisors, 126 have many. At given
    degrees of a pipeline, experts included, it has as many replicas as the nodes hold.
(2) Its batch is the largest that its replicas and micro-batches divide, at most B, and at least (1 - s) B for a share
    s. Plans are compared by seconds a sequence, T / B'.

Two answers. *Kept*: no device that is left changes the weights that it holds. The strategy is the plan's, with as many
replicas as are left. With :math:`A_x` the blocks of stage x that are left and E those of empty spare nodes,

(3) the replicas are the largest dp' with :math:`\sum_x \max(0, dp' - A_x) \le E`, since any block of stage 0 may work
    with any of stage 1, whichever replicas they were in. Of more than dp' blocks of a stage the fastest run, so that
    no other choice computes for less. Spare nodes take missing blocks, and weights go to them alone. The bound is the
    one of a search of the strategy, or the m micro-batches of the slowest device with the layers that it holds.

*Best*: everything may move. A *part* is a set of nodes with degrees pp, tp, cp, dp and micro-batch, and thus a batch.

(4) ``left`` bounds a part's seconds a sequence by its layers. The least bound ``relaxation`` of its candidates that
    may fit the memory replaces this bound, and the bound of a search in its turn, which stops at the best plan so far.
(5) Parts whose bound is no less than the best plan's seconds a sequence hold no better plan. Of the others the part
    with the least bound is taken next. The bound over all parts is the least of theirs, at any moment.

Of nodes of one class any are alike, so (5) holds for every set of nodes where all nodes left are alike but for slow
ones, which take part all or none. Elsewhere (racks, measured links) nodes are left idle in one order: those of the
smallest class first.

(6) Moving (``taut.solver.moving``) takes between :math:`S^-` and :math:`S^+` seconds. With seconds a sequence
    :math:`u` kept and :math:`v < u` at best, the best plan is ahead after :math:`(S_v^+ - S_u^-) / (u - v)` sequences
    at the latest.

Begin with ``replan``: the two answers. ``left`` has names, nodes and costs of what is left, and the bounds (4) of
parts, ``result`` the words, and ``spares`` the number of spare nodes to keep.
"""
