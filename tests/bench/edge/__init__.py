"""The edge beside the bare node and beside LiteLLM's proxy: latency, throughput, streams, memory and CPU."""
