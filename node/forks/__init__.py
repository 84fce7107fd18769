"""Work on what strangers send, in processes that can be killed: one fork for each job.

Knows neither images nor grammars. `zygote.py` is what such a program runs, `pool.py` is how the node asks it.
"""
