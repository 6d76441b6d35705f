"""The program of the sandbox's process: gives up its rights for good, then runs the code on its stdin.

Started as `python -I -S sandbox_child.py CONFIG` with a JSON object; imports nothing of ours.
Linux only: Landlock for files, seccomp for network, processes and signals. The numbers are those
of the kernel's interface (linux/landlock.h, linux/seccomp.h, asm/unistd.h).
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import sys
import traceback

LIBC = ctypes.CDLL(None, use_errno=True)
# by machine: its number in seccomp, and the calls that are refused: sockets; fork, vfork, clone, clone3, execve,
# execveat; kill, tkill, tgkill, pidfd_send_signal; ptrace and the memory of others; io_uring, which goes
# round this list; System V memory, which outlives the process; modes, owners, times and attributes of files,
# which Landlock does not know
MACHINES = {
    "x86_64": (0xC000003E, (
        41, 56, 57, 58, 59, 322, 435, 62, 200, 234, 424, 101, 310, 311, 425, 29, 64, 68, 90, 91, 92, 93, 94, 132,
        188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452,
    )),
    "aarch64": (0xC00000B7, (
        198, 220, 221, 281, 435, 129, 130, 131, 424, 117, 270, 271, 425, 186, 190, 194, 5, 6, 7, 14, 15, 16, 52, 53,
        54, 55, 88, 452,
    )),
}  # fmt: skip
READ = 0b1101  # execute, read file, read folder
FILE = 0b110  # write and read file
LANDLOCK_RIGHTS = {0: 0, 1: (1 << 13) - 1, 2: (1 << 14) - 1}  # by version; since 3 with truncate


def gap() -> str:
    """Why this machine can't confine a process; empty where it can."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"{sys.platform} on {platform.machine()} is not known to it"
    if LIBC.syscall(444, None, 0, 1) < 1:
        return "this kernel has no Landlock (Linux 5.13, enabled)"
    return ""


def limit(*, cpu_s: int, memory_mb: int, file_mb: int) -> None:
    limits = {"CPU": cpu_s, "AS": memory_mb << 20, "FSIZE": file_mb << 20, "CORE": 0, "NOFILE": 64}
    for name, value in limits.items():
        # past the soft limit of CPU comes a signal that names it
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value + (name == "CPU")))


def confine(readable: list[str]) -> None:
    # with the worker that started it, however that ends
    _called(LIBC.prctl(1, 9, 0, 0, 0), "parent death signal")
    _called(LIBC.prctl(38, 1, 0, 0, 0), "no_new_privs")
    _forget_capabilities()
    _restrict_files(readable)
    _restrict_calls()


def _forget_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    _called(LIBC.capset(header, bytes(24)), "capset")


def _restrict_files(readable: list[str]) -> None:
    """Write beneath the working directory, read beneath `readable`, nothing else."""
    rights = LANDLOCK_RIGHTS.get(LIBC.syscall(444, None, 0, 1), (1 << 15) - 1)
    ruleset = _called(LIBC.syscall(444, struct.pack("Q", rights), 8, 0), "landlock_create_ruleset")
    allowed = {".": rights & ~1, "/dev/null": FILE, "/dev/urandom": 4} | dict.fromkeys(readable, READ)
    for path, granted in allowed.items():
        if os.path.exists(path):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", granted, folder)
            _called(LIBC.syscall(445, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
            os.close(folder)
    _called(LIBC.syscall(446, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _restrict_calls() -> None:
    machine, refused = MACHINES[platform.machine()]
    load, equal, above, result = 0x20, 0x15, 0x35, 0x06
    kill, refuse, allow = 0x80000000, 0x50001, 0x7FFF0000
    program = [(load, 0, 0, 4), (equal, 1, 0, machine), (result, 0, 0, kill), (load, 0, 0, 0)]
    program += [(above, 0, 1, 0x40000000), (result, 0, 0, refuse)]  # x32 names calls anew
    for number in refused:
        program += [(equal, 0, 1, number), (result, 0, 0, refuse)]
    program.append((result, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    sock_fprog = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    _called(LIBC.prctl(22, 2, sock_fprog, 0, 0), "seccomp")


def _called(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def main() -> None:
    config = json.loads(sys.argv[1])
    source = sys.stdin.buffer.read()
    sys.argv[:] = ["<python>"]
    sys.path.append(config["packages"])
    limit(**config["limits"])
    if config["confined"]:
        confine(config["readable"])
    try:
        exec(compile(source, "<python>", "exec"), {"__name__": "__main__"})  # noqa: S102  what all this is for
    except Exception as error:  # noqa: BLE001  whatever the code raises, shown without our own frames
        here = error.__traceback__
        traceback.print_exception(error.with_traceback(here.tb_next if here else None))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
