"""Ports of this host that are held for a process which will listen there.

A port that was free a moment ago may be another program's now. One that is held is bound and not listening: no program that asks
for any port is given it, on no address, and who names it and says SO_REUSEPORT (TensorFlow, told by TF_GRPC_REUSE_PORT)
or SO_REUSEADDR (the store of torch.distributed) can listen there.
"""
from __future__ import annotations

import socket

__all__ = ["reserve_port"]


def reserve_port() -> socket.socket:
    """A socket that holds a port until it is closed, on all addresses, since TensorFlow and PyTorch listen at them all."""
    both = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
    if both:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("", 0))
    return held
