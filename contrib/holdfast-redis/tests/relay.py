"""A TCP relay in front of Redis that can lose answers and connections."""

import contextlib
import socket
import threading


class Relay:
    """Passes bytes on, until told to lose the next answer or to be gone."""

    def __init__(self, port):
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lose_next_answer = threading.Event()
        self._gone = threading.Event()
        self._open = []
        self.lost = 0
        """Answers that were not passed on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self):
        self._lose_next_answer.set()

    def go(self):
        """Cut all connections, and let no new one live."""
        self._gone.set()
        for connection in list(self._open):
            _close(connection)

    def come_back(self):
        self._gone.clear()

    def close(self):
        self.go()
        _close(self._listener)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._gone.is_set():
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(far, near, True), daemon=True).start()

    def _pass_on(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer and self._lose_next_answer.is_set():
                    self._lose_next_answer.clear()
                    self.lost += 1
                    break
                target.sendall(data)
        _close(source)
        _close(target)


def _close(connection):
    # Shut down first: closing alone does not wake a thread that waits for it.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
