"""
Tables of every range of layers at the degrees of a candidate: seconds, traffic, bytes and memory.

Begin with ``priced_layers`` (layers with prices) and ``stage_tables`` (seconds, bytes and messages of ranges).
``memory`` adds up what a stage holds, ``block_traffic`` and ``traffic_tables`` what tensor, context and expert ranks
send, ``order_memory`` what the chunks of an order hold. ``optimizer_offload`` and ``activation_offload`` price what
lies in the host's memory.
"""
