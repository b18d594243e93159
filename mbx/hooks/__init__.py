"""Hooks and status lines of agent CLIs: what their clients run, and the scripts that setup puts."""
