"""Threads, processes and devices: data parallelism, hosts, services, precision, memory."""
