"""
Layers of a model: attention, plain or latent, and the feed-forward part, dense or with experts.

Begin with ``layer``, which has latent attention too. ``experts`` is a part of it, ``dispatch`` says how expert ranks
exchange tokens.
"""
