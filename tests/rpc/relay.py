"""A TCP relay that can break a connection where a test wants it broken."""

import contextlib
import socket
import threading


class Relay:
    """Passes bytes on in both directions, until told otherwise."""

    def __init__(self, target_port, *, cut_after=None, cut_answers_after=None):
        """Close each connection once so many bytes have gone to the server, or come from it."""
        self._target_port = target_port
        self._cut_after = cut_after
        self._cut_answers_after = cut_answers_after
        self._sockets = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Close every connection that is open now."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for open_socket in sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target_port))
            with self._lock:
                self.connections += 1
                self._sockets += [near, far]
            threading.Thread(target=self._pass_on, args=(near, far, self._cut_after), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, self._cut_answers_after), daemon=True).start()

    def _pass_on(self, source, sink, limit):
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if limit is not None and passed + len(data) >= limit:
                    sink.sendall(data[: limit - passed])
                    break
                passed += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
