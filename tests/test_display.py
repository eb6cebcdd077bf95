"""A result as text, where something other than a terminal shows it."""

import rich.console

import shiftbed as sb


def test_a_result_is_text_in_a_notebook_too(monkeypatch):
    """rich shows instead of writing when it finds Jupyter around it."""
    planned = sb.plan(0.05)
    said = str(planned)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel has it
    assert "\x1b" not in said
    assert said
    assert str(planned) == repr(planned) == said
