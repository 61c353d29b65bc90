"""Many runs in one call: one model at many settings, with many keys, on many streams.

May import from `core` to `paper`.
"""
