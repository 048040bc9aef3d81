"""
Other planners, written from their papers, with the prices and rules of the problem at hand.

``trials`` holds what they share; each module is one planner: ``megatron``, ``varuna``, ``fsdp``, ``amp`` with
``dominoes``, ``pipette``, ``hethub`` and ``random_search``. What a paper leaves open (recompute,
ZeRO, sequence parallelism) is decided by the evaluator in its favour: the quickest that fits. None yields a bound.
"""
