"""The fixtures of importing: what is read is seen through ``import_results``."""

from tests.importing.conftest import refused, write

__all__ = ["refused", "write"]
