"""Objectives beside cross-entropy and squared error: consistency, replay, class maps, captions."""
