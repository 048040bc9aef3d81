"""
A placement in the words of the program that starts the processes: torchrun, Slurm, Open MPI.

Begin with ``processes``, the node and GPU of every process; each starter has a module.
"""
