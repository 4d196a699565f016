# SPDX-License-Identifier: BSD-3-Clause
"""Forked processes: before and after the first use, and their end."""


def test_fork_before_the_first_use(check):
    done = check(
        """
        import os, torch
        torch.manual_seed(3)
        assert torch.loom.is_available() and not torch.loom.is_initialized()
        pid = os.fork()
        value = torch.ones(1000, device="loom").sum().item()
        assert value == 1000
        if pid == 0:
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status))
        """
    )
    assert done.out == "0\n"


def test_fork_after_the_first_use(check):
    done = check(
        """
        import os, torch
        x = torch.ones(1000, device="loom")
        torch.loom.synchronize()
        pid = os.fork()
        if pid == 0:
            errors = []
            for use in (
                lambda: torch.ones(1, device="loom"),
                lambda: x + 1,
                lambda: x.cpu(),
                lambda: torch.loom.synchronize(),
                lambda: torch.loom.Stream(),
                lambda: torch.loom.init(),
            ):
                try:
                    use()
                except RuntimeError as error:
                    errors.append("forked subprocess" in str(error) and "spawn" in str(error))
            torch.manual_seed(1)  # must work: DataLoader's workers do it
            ok = torch.loom._is_in_bad_fork() and not torch.loom.is_initialized()
            print(errors, ok, (torch.ones(3) + 1).tolist(), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        assert (x + 1).sum().item() == 2000
        """
    )
    assert done.out == f"{[True] * 6} True [2.0, 2.0, 2.0]\n"


def test_a_forked_child_exits_normally(check):
    done = check(
        """
        import os, sys, torch
        x = torch.ones(1000, device="loom") + 1
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # runs the exit handlers; frees x
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), x.sum().item())
        """
    )
    assert done.out == "0 2000.0\n"
