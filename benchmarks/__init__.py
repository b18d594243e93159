"""The speed of mbx against floors measured in the same run: `scripts/bench`, docs/speed.md."""
