"""Workers: what the daemon does besides answering."""
