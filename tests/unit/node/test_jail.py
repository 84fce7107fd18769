"""The filter of system calls, as the kernel would run it, for machines that the tests don't run on as well."""

from __future__ import annotations

import mmap
import struct

import pytest

from node.forks import jail

KILL, ALLOW = 0x80000000, 0x7FFF0000
NUMBERS = {
    "x86_64": {
        "open": 2,
        "clone": 56,
        "fork": 57,
        "execve": 59,
        "kill": 62,
        "ptrace": 101,
        "openat": 257,
        "socket": 41,
    },
    "aarch64": {
        "clone": 220,
        "execve": 221,
        "kill": 129,
        "ptrace": 117,
        "openat": 56,
        "socket": 198,
        "prlimit64": 261,
    },
}
MACHINES = sorted(NUMBERS)


def verdict(
    machine: str, call: int, third: int = 0, audit: int | None = None, also: frozenset[str] = frozenset()
) -> int:
    """What the program returns."""
    architecture = jail._AUDIT[machine] if audit is None else audit
    data = struct.pack("<IIQ6Q", call, architecture, 0, 0, 0, third, 0, 0, 0)
    steps = [struct.unpack("<HBBI", step) for step in jail._program(machine, also)]
    place, value = 0, 0
    while True:
        code, if_true, if_false, operand = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                place += if_true if value == operand else if_false
            case 0x45:
                place += if_true if value & operand else if_false
            case 0x06:
                return int(operand)
            case _:
                pytest.fail(f"no such instruction: {code:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_only_what_is_listed_is_allowed(machine: str) -> None:
    allowed = {number for number in range(512) if verdict(machine, number, third=mmap.PROT_READ) == ALLOW}
    listed = {**jail._COMPUTING, **jail._WITHOUT_CODE}.values()
    assert allowed == {getattr(call, machine) for call in listed}
    assert not allowed & set(NUMBERS[machine].values())


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_that_runs_is_not_allowed(machine: str) -> None:
    for call in jail._WITHOUT_CODE.values():
        number = getattr(call, machine)
        assert verdict(machine, number, mmap.PROT_READ | mmap.PROT_WRITE) == ALLOW
        assert verdict(machine, number, mmap.PROT_READ | mmap.PROT_EXEC) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_the_timer_is_allowed_on_request_only(machine: str) -> None:
    number = getattr(jail._ON_REQUEST["setitimer"], machine)
    assert verdict(machine, number) == KILL
    assert verdict(machine, number, also=frozenset({"setitimer"})) == ALLOW


def test_other_architectures_and_their_numbers_are_not_allowed() -> None:
    i386, x32_bit = 0x40000003, 0x40000000
    assert verdict("x86_64", 0, audit=i386) == KILL
    assert verdict("x86_64", 0 | x32_bit) == KILL


def test_a_machine_without_numbers_has_no_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not jail.enter_jail()
