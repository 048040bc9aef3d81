"""
What runs today beside the proven best.

``compare`` prices a stated configuration as it is, plans the same training, and prices the single changes that would
gain most; ``compare_plans`` sets two plans side by side. Begin with ``compare.py``.
"""
