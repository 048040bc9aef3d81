"""
Tables of every range of layers at the degrees of a candidate: seconds, traffic, bytes and memory.

Begin with ``priced_layers`` (layers with prices) and ``stage_tables`` (seconds, bytes and messages of ranges).
``memory`` lists and adds up what a stage, or a device with several chunks, holds. ``block_traffic`` has what tensor,
context and expert ranks send, and over which links.
"""
