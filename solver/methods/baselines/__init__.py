"""
Other planners, written from their papers, with the prices and rules of the problem at hand.

``rules`` holds what they share, Megatron-LM's, FSDP's, Varuna's and Pipette's rules, and random search; ``amp`` and
``hethub`` are a planner each. What a paper leaves open (recompute, ZeRO, sequence parallelism) is decided
by the evaluator in its favour: the quickest that fits. None yields a bound.
"""
