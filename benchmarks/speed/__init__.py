"""Speed and memory, measured in one run on one machine and written down with it."""
