"""What happens in the owner's own process and nowhere else: the key file, the terminal, signing.

The daemon drafts, verifies and applies; the owner's key and passphrase never reach it. Nothing here
speaks to the daemon or opens the store.
"""
