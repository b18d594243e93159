"""Shell completion: the scripts for bash, zsh and fish, and what they ask `mbx` for."""
