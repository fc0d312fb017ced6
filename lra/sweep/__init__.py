"""Many runs by one command: planned, carried out here or on a cluster, and never made twice."""

__all__: list[str] = []
