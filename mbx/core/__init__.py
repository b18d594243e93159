"""The pure core: rules as functions of values and ``now``. No I/O, no clock, no randomness."""
