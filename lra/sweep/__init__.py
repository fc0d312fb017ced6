"""Many runs by one command, on this machine or a cluster; no run is carried out twice."""

__all__: list[str] = []
