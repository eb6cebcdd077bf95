"""Functions from arrays to frozen results: no file is read here, nothing drawn, no torch."""
