"""shiftbed: is an image classifier robust to distribution shift, or merely accurate?

>>> import shiftbed as sb
>>> testbed = sb.published("imagenet-testbed-2020")
>>> line = testbed.fit("imagenet-v2")
>>> line.n, round(line.weights[0], 4), round(line.intercept, 4), round(line.r2, 4)
(78, 0.9217, -0.4947, 0.9965)
"""

from shiftbed.analysis.baseline import Baseline, fit_baseline
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.robustness import Robustness, effective_robustness
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.scales import LINEAR, LOGIT, PROBIT
from shiftbed.testbed import Testbed, open_testbed, published, read_testbed, write_testbed

__all__ = [
    "LINEAR",
    "LOGIT",
    "PROBIT",
    "Baseline",
    "InputError",
    "Robustness",
    "Shift",
    "Testbed",
    "clopper_pearson",
    "effective_robustness",
    "fit_baseline",
    "open_testbed",
    "published",
    "read_testbed",
    "write_testbed",
]
__version__ = "0.1.0"
