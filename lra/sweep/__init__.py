"""Many runs by one command: planned, carried out on what is there, never made twice."""
