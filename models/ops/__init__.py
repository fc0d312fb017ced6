"""Pure functions of tensors, each fast form beside its reference."""

__all__ = [
    "activations",
    "biased_attention",
    "cauchy",
    "circulant",
    "depthwise",
    "diagonal_recurrence",
    "hippo",
    "interpolation",
    "linear_pair",
    "local_attention",
    "reference",
    "rotary",
    "spectral_attention",
    "spectral_tilt",
    "toeplitz",
    "toroidal_attention",
    "torus",
    "torus_reach",
    "vandermonde",
]
