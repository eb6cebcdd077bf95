"""Results as finished charts: a testbed, a store or a finished table in, a chart record out.

Everything is computed here or below; ``shiftbed.figures`` only draws what comes out.
"""
