"""An HTTP server that answers every request with the same bytes as soon as it is there: what HTTP itself takes.

python benchmarks/_constant.py BYTES
"""

from __future__ import annotations

import re
import socket
import sys


def main(size: int) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    answer = head.encode() + b" " * size
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            request = b""
            while b"\r\n\r\n" not in request:
                piece = connection.recv(1 << 18)
                if not piece:
                    return
                request += piece
            headers, _, begun = request.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: *(\d+)", headers.lower())
            assert found is not None
            left = int(found[1]) - len(begun)
            while left > 0:
                left -= len(connection.recv(1 << 18))
            connection.sendall(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
