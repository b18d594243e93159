"""`mbx setup`: enters mbx into the agent CLIs of this machine, and takes it out again.

Each CLI is one small module that says what stands in which of its files. The rest is common: pure
edits of texts that keep every other byte, a plan, and the thin part that reads and writes.
"""
