"""Serves models over HTTP: predicts now, learns when the answer comes, and loses nothing.

A request goes from ``web`` to the thread of ``writer``, which handles all requests of a moment as
one transaction of ``log``, and applies their answers to the models of ``streams`` in their order.
May import from ``core`` to ``adapters``.
"""
