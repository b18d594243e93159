"""The daemon: the only process that opens the store. Everything else speaks to it."""
