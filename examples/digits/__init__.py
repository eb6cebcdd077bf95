"""Handwritten digits: a real natural shift with what pip brings, small enough for a minute."""
