"""Published figures as testbed files, one Parquet file each (see ``tools/build_published.py``)."""
