"""Carrying decisions out: bindings, and the events and conditions that tell about them."""
