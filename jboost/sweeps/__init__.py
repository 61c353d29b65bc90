"""Many runs in one call: over settings and keys, fleets of streams, on all cores and devices."""
