"""The store: units of work, SQL and migrations. Nothing outside this package writes SQL."""
