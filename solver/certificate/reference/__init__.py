"""
A reference evaluator: what a plan costs and holds, and which candidates a space has, for the checker alone.

It states the problem a second time, plainly, from the definitions, and imports the input specs and numpy only, so that
an error in ``taut.formulations`` or in a bound does not repeat itself in the check. Begin at ``prices``; ``candidates``
enumerates a ``space``, ``memory`` adds up bytes, ``layers`` and ``network`` read costs and links.
"""
