"""Background threads; the first failure ends the program with its cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from motif_jax.core.errors import UserError, first_line


class ServiceFailedError(RuntimeError):
    """A thread failed; the cause is chained."""


class Services:
    """Threads, and the first error; `stopping` is set when they should end, on request or because
    one failed.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failed: list[tuple[str, BaseException]] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Calls `work` repeatedly in a thread until the services stop; it must return now and
        then.
        """

        def loop() -> None:
            try:
                while not self.stopping.is_set():
                    work()
            except BaseException as error:
                # Every kind of error: the main thread raises it again in `check`.
                self._failed.append((name, error))
                self.stopping.set()

        # A daemon, so that a thread that does not end in time cannot keep the process.
        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def check(self) -> None:
        """Raises ServiceFailedError if a thread has failed, or its UserError itself."""
        if self._failed:
            name, error = self._failed[0]
            if isinstance(error, UserError):
                raise error
            raise ServiceFailedError(f"the {name} thread failed: {first_line(error)}") from error

    def stop(self, timeout: float = 600.0) -> None:
        """Asks all threads to end and waits for them; one may be compiling a large program. Raises
        RuntimeError: one did not end.
        """
        self.stopping.set()
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise RuntimeError(f"the {thread.name} thread did not end in {timeout} seconds")
