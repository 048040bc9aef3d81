"""
vTrain's first and third case study (arXiv 2312.12391) beside ours.

``step`` prices a plan by vTrain's rules, ``plans`` by our calibration of measured runs, and is table I. ``sizes`` is
table III, ``space`` figure 10 with the best plan for each number of GPUs; ``study`` puts them together.
"""
