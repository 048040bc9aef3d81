"""
Step time and memory of given configurations, and the fits that prices rest on.

``rows`` holds :func:`taut.predict`, which prices configurations together; ``experts`` prices one alone, ``settings``
says by what; ``fitting`` fits calibrations and memory models to measured runs.
"""
