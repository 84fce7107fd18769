"""`make bench-node`: what the node costs, beside vLLM's own server of the same API."""
