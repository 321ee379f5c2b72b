"""Decides a recorded log again."""
