"""What agents see over MCP: tools, guide, texts. Constants and pure functions; no SDK, no I/O."""
