"""Files people have, read as they are; what their columns mean is decided elsewhere.

``tables`` reads whole tables strictly; ``streams`` goes through files of any size and leaves it to
the caller what a damaged row is worth. Nothing is unpacked or unpickled.
"""
