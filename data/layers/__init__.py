"""
Layers of a model: attention, plain or latent, and the feed-forward part, dense or with experts.

Begin with ``layer``. ``experts`` and ``latent`` are its parts, ``dispatch`` says how expert ranks exchange tokens.
"""
