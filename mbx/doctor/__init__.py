"""`mbx doctor`: pure checks as functions of what was seen, and the thin part that looks.

Only `mbx.cli.commands.doctor` imports it. It starts no daemon, and changes nothing but what
`remedies` is told to.
"""
