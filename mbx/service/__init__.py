"""The daemon as a service of the user: what systemd and launchd are given to start it."""
