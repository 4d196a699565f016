# SPDX-License-Identifier: BSD-3-Clause
"""Processes: the variable, the command line, and children by fork, spawn and exec."""

import os

import pytest

pytestmark = pytest.mark.usefixtures("loom_names")

PRINTS = "import torch; print(torch.cuda.is_available(), torch.ones(1, device='cuda').device)"


def test_the_variable_turns_the_names_on(check):
    assert check(PRINTS, TORCH_LOOM_AS_CUDA="1").out.split() == ["True", "cuda:0"]


@pytest.mark.parametrize("value", ["", "0", None])
def test_without_the_variable_they_are_off(value, check):
    done = check("import torch; print(torch.cuda.is_available())", TORCH_LOOM_AS_CUDA=value)
    assert done.out.split() == ["False"]


def test_another_value_is_refused(run):
    done = run("import torch_loom", TORCH_LOOM_AS_CUDA="yes")
    assert "TORCH_LOOM_AS_CUDA: expected 0, 1 or force, got 'yes'" in done.err


def test_a_forked_child_has_the_names(check):
    done = check(
        """
        import os, torch, torch_loom
        with torch_loom.as_cuda():
            child = os.fork()
            if child == 0:
                print(torch.ones(1, device="cuda").device, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert done.out.split() == ["cuda:0"]


def test_use_in_a_child_forked_after_use_is_refused_in_cuda_s_words(check):
    done = check(
        """
        import os, torch, torch_loom
        with torch_loom.as_cuda():
            torch.ones(1, device="cuda")
            child = os.fork()
            if child == 0:
                try:
                    torch.cuda.init()
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert "Cannot re-initialize CUDA in forked subprocess" in done.out


SPAWNS = """
import torch
import torch.multiprocessing as mp

def child(index, queue, tensor):
    queue.put((index, str(torch.ones(1, device=f"cuda:{index}").device), tensor.sum().item()))

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue = context.Queue()
    tensor = torch.ones(2, device="cuda:1")
    children = [context.Process(target=child, args=(i, queue, tensor)) for i in range(2)]
    for each in children:
        each.start()
    print(sorted(queue.get(timeout=100) for _ in children))
    for each in children:
        each.join()
"""


def _command(program, *arguments, before=()):
    return f"""
import runpy, sys
sys.argv = ["torch_loom", "run", *{list(before)!r}, {str(program)!r}, *{list(arguments)!r}]
runpy.run_module("torch_loom", run_name="__main__", alter_sys=True)
"""


def test_the_command_line_runs_a_script_with_its_arguments(tmp_path, check):
    script = tmp_path / "script.py"
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    script.write_text(
        "import sys, torch\n"
        "sys.path.insert(0, '.')\n"
        "print(__name__, sys.argv[1:], torch.cuda.device_count(), torch.cuda.is_available())\n"
        "sys.exit(3 if '--fail' in sys.argv else 0)\n"
    )
    source = _command(script, "--x", "-m", before=("--as-cuda", "--gpus", "3"))
    assert check(source).out == "__main__ ['--x', '-m'] 3 True\n"


def test_the_command_line_hands_on_the_exit_code(tmp_path, run):
    script = tmp_path / "script.py"
    script.write_text("import sys\nsys.exit(3)\n")
    assert run(_command(script, before=("--as-cuda",))).code == 3


def test_the_command_line_runs_a_module(tmp_path, check):
    (tmp_path / "a_module.py").write_text(
        "import sys, torch\nprint(sys.argv[1:], torch.cuda.is_available())\n"
    )
    source = _command("-m", "a_module", "--flag", before=("--as-cuda",))
    assert check(source, PYTHONPATH=_with(tmp_path)).out == "['--flag'] True\n"


def test_the_command_line_leaves_the_names_alone(tmp_path, check):
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.cuda.is_available(), torch.loom.device_count())\n")
    assert check(_command(script, before=("--gpus", "2"))).out == "False 2\n"


PICKLED_LATE = """
import atexit, pickle, sys, threading

class A: pass

def late(when):
    pickle.dumps(A())
    print(when)

def later():
    threading.main_thread().join()  # which has left the script
    late("thread")

print(sys.argv[0] == __file__, sys.path[0])
threading.Thread(target=later).start()
atexit.register(late, "exit")
"""


def test_a_script_is_main_to_its_end(tmp_path, check):
    script = tmp_path / "script.py"
    script.write_text(PICKLED_LATE)
    wanted = f"True {tmp_path}\nthread\nexit\n"
    assert check(_command(script, before=("--as-cuda",)), PYTHONSAFEPATH=None).out == wanted


def test_a_script_that_is_not_there(tmp_path, run):
    done = run(_command(tmp_path / "none.py", before=("--as-cuda",)))
    assert done.code == 2
    assert "can't open file" in done.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [((), "expected a script, or -m and a module"), (("--gpus", "0", "x.py"), "at least 1, got 0")],
)
def test_the_command_line_says_what_is_wrong(arguments, problem, run):
    source = f"""
import runpy, sys
sys.argv = ["torch_loom", "run", *{list(arguments)!r}]
runpy.run_module("torch_loom", run_name="__main__", alter_sys=True)
"""
    done = run(source)
    assert done.code == 2
    assert problem in done.err


def test_spawned_children_have_the_names(tmp_path, check):
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    done = check(_command(script, before=("--as-cuda", "--gpus", "2")))
    assert done.out == "[(0, 'cuda:0', 2.0), (1, 'cuda:1', 2.0)]\n"


def _with(path):
    return os.pathsep.join([str(path), *filter(None, [os.environ.get("PYTHONPATH")])])
