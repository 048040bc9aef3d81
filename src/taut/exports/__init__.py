"""
Files that launch a plan.

Begin with ``export``. Each framework has a module that writes the strategy in its words (``megatron``, ``torchtitan``,
``deepspeed``, ...), ``job`` writes the placement, and ``nearest`` finds what a framework can run instead.
"""
