"""Is there an NVIDIA GPU? Must stay cheap: it is asked before torch may be imported."""

from __future__ import annotations

import shutil
import subprocess


def has_nvidia_gpu() -> bool:
    """Whether the driver lists at least one GPU; the set-up asks the same way."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    try:
        listed = subprocess.run([command, "-L"], capture_output=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and b"GPU" in listed.stdout
