"""Training: recipes of jobs, fine-tuning and its checkpoints, each a model of the testbed.

How it is put together, and where to add to it, says ``README.md`` beside this. Only what needs no
deep-learning framework is imported here: a recipe can be read and counted without one.
"""

from shiftbed.training.recipe import Grid, Job, Recipe, read_recipe

__all__ = ["Grid", "Job", "Recipe", "read_recipe"]
