"""A placement in the words of what starts processes: torchrun, Slurm, Open MPI."""
