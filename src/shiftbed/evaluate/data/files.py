"""Images that are files: folders with a sub-directory per class, and CSV manifests."""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError, unknown
from shiftbed.evaluate.data.decode import EXTENSIONS, NoImage, decode_file
from shiftbed.evaluate.data.digests import DigestCache, Part, cached, hash_file
from shiftbed.evaluate.data.found import Found, Options, some
from shiftbed.evaluate.data.record import Images

__all__ = ["FileImages", "read_folder", "read_manifest"]
