"""One module per command or family of commands; only that of the invoked one is imported."""
