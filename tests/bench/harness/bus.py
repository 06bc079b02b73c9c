"""A message bus of one's own with what sysprof-cli needs on it: polkitd and sysprofd."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.harness.accounting import Account

POLKITD = Path("/usr/lib/polkit-1/polkitd")
SYSPROFD = Path("/usr/libexec/sysprofd")
_START_TIMEOUT_S = 15.0

_CONFIG = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
"""


def missing_parts() -> str:
    """Say what of it is not installed, or empty."""
    for program in ("dbus-daemon", "dbus-send"):
        if shutil.which(program) is None:
            return f"no {program}, which sysprof-cli needs"
    for part in (POLKITD, SYSPROFD):
        if not part.exists():
            return f"no {part}, which sysprof-cli needs"
    return "" if os.geteuid() == 0 else "sysprofd must be started as root"


class PrivateBus:
    """The bus and its two services, inside an account: sysprofd opens the events."""

    def __init__(self, account: Account, folder: Path) -> None:
        self._account = account
        self._socket = folder / "bus"
        self._config = folder / "bus.conf"
        self.environment = {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self._socket}"}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all three; raises RuntimeError, everything ended, when one does not come."""
        try:
            self._start()
        except RuntimeError:
            self.stop()
            raise

    def _start(self) -> None:
        self._socket.parent.chmod(0o711)  # polkitd comes as a user of its own
        self._config.write_text(_CONFIG.format(socket=self._socket), encoding="ascii")
        self._run("dbus-daemon", f"--config-file={self._config}", "--nofork")
        until = time.monotonic() + _START_TIMEOUT_S
        while not self._socket.exists():
            if time.monotonic() > until:
                raise RuntimeError("dbus-daemon did not start")
            time.sleep(0.02)
        self._run(str(POLKITD), "--no-debug")
        self._wait_for("org.freedesktop.PolicyKit1")
        self._run(str(SYSPROFD))
        self._wait_for("org.gnome.Sysprof3")

    def _wait_for(self, name: str) -> None:
        """Wait until somebody owns a name on the bus."""
        command = ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/"]
        command += ["org.freedesktop.DBus.NameHasOwner", f"string:{name}"]
        until = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < until:
            done = subprocess.run(
                command, capture_output=True, check=False, env=os.environ | self.environment
            )
            if b"boolean true" in done.stdout:
                return
            time.sleep(0.05)
        raise RuntimeError(f"nobody took the name {name} on the bus")

    def _run(self, *command: str) -> None:
        quiet = subprocess.DEVNULL
        environment = os.environ | self.environment
        self._processes.append(
            self._account.start(list(command), env=environment, stdout=quiet, stderr=quiet)
        )

    def stop(self) -> None:
        """End them, the bus last."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
        self._processes.clear()
