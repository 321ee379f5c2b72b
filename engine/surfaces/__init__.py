"""What people and other programs see: commands, pages, live answers, the extender."""
