"""A machine with an emulated DSA: a folder of files, and the library to preload."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUEUE = {
    "state": "enabled",
    "type": "user",
    "driver_name": "user",
    "mode": "shared",
    "size": "16",
    "max_transfer_size": "65536",
}
DEVICE = {"state": "enabled", "pasid_enabled": "1", "gen_cap": "0x40915f010f", "numa_node": "-1"}


def emulator(folder):
    """The emulator, compiled into ``folder``."""
    library = folder / "emulator.so"
    sources = sorted((ROOT / "tests/native/dsa_emulator").glob("*.c"))
    command = ["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", f"-I{ROOT}/native/include"]
    subprocess.run([*command, "-o", library, *sources, "-lpthread"], check=True)
    return library


def machine(folder, **queue):
    """Files of one device with one queue, of which ``queue`` says what is otherwise."""
    for name, files in (("dsa0", DEVICE), ("wq0.0", QUEUE | queue)):
        place = folder / "sys/bus/dsa/devices" / name
        place.mkdir(parents=True, exist_ok=True)
        for file, value in files.items():
            (place / file).write_text(value + "\n")
    node = folder / "dev/dsa/wq0.0"
    node.parent.mkdir(parents=True, exist_ok=True)
    node.touch()
    return folder


def environment(library, folder, **faults):
    """Variables for a program that is to see it; ``faults`` are the emulator's fields."""
    settings = {f"DSA_EMULATOR_{name.upper()}": str(value) for name, value in faults.items()}
    ours = {"LD_PRELOAD": str(library), "DSA_EMULATOR_ROOT": str(folder)}
    return {**os.environ, **ours, **settings}
