"""The server of a made-up carrier, started as Lupine's is: by LUPINE_PORT and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import socketserver
import sys


class Client(socketserver.StreamRequestHandler):
    """One process that uses the device; its memory goes with it."""

    def handle(self) -> None:
        """Do its calls until it is gone."""
        memory: dict[int, bytearray] = {}
        for line in self.rfile:
            word, *numbers = line.split()
            values = [int(number) for number in numbers]
            if word == b"name":
                self.wfile.write(f"lent {os.environ['CUDA_VISIBLE_DEVICES']}\n".encode())
            elif word == b"alloc":
                memory[len(memory) + 1] = bytearray(values[0])
                self.wfile.write(b"%d\n" % len(memory))
            elif word == b"put":
                memory[values[0]][: values[1]] = self.rfile.read(values[1])
                self.wfile.write(b"ok\n")
            elif word == b"get":
                self.wfile.write(memory[values[0]][: values[1]])


class Server(socketserver.ThreadingTCPServer):
    """Listens where the run has it listen."""

    allow_reuse_address = True
    daemon_threads = True


with Server(
    (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1", int(os.environ["LUPINE_PORT"])), Client
) as one:
    one.serve_forever()
