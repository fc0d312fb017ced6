"""Pure functions of tensors, each fast form beside its reference."""

__all__ = [
    "activations",
    "cauchy",
    "circulant",
    "depthwise",
    "hippo",
    "interpolation",
    "linear_pair",
    "local_attention",
    "reference",
    "rotary",
    "spectral_attention",
    "toeplitz",
    "toroidal_attention",
    "torus",
    "torus_reach",
    "vandermonde",
]
