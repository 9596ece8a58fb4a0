"""The benchmark: time, memory and accuracy against peers and the machine's measured limit.

Each contestant runs in a process of its own, since two runtimes in one would fight over the cores.
"""
