"""Faces: how callers reach the dispatcher. They translate; they never decide."""
