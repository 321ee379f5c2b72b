"""The record of a difference between two decisions, and which pods policies cannot tell apart."""
