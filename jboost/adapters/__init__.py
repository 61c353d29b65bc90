"""jboost as others expect a regressor: :mod:`.sklearn` and :mod:`.river`."""
