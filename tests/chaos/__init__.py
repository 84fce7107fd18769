"""Long runs of a whole service: nodes that die every second, restarts in turn, and a day's traffic in short."""
