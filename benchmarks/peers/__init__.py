"""
Other planners on their own inputs, each run here from a checkout of its public code, beside ours and a lower bound.

``__main__`` is the command and has the list of peers; ``frame`` has the row that all share and runs their programs.
Each other module is one peer: it makes the peer's input, runs the peer, and prices both answers in the same way. No
code of a peer is part of the project: without a checkout the command says so and prints nothing else.
"""
