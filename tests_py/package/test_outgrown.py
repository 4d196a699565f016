# SPDX-License-Identifier: BSD-3-Clause
"""Where torch has changed what the package patches, users get a warning and the rest of it."""

NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_a_patch_that_does_not_fit_is_left_out_by_name(check):
    done = check(
        """
        import torch
        cls = torch.optim.Optimizer
        original = cls._accelerator_graph_capture_health_check
        cls._accelerator_graph_capture_health_check = lambda self, stream=None: original(self)
        import torch_loom
        weight = torch.ones(3, device="loom", requires_grad=True)
        weight.sum().backward()
        torch.optim.SGD([weight], lr=0.5).step()
        assert weight.tolist() == [0.5] * 3
        """,
        **NO_AUTOLOAD,
    )
    assert done.err.count("torch-loom:") == 1
    assert "PyTorch's optimizers does not know loom: OutgrownError" in done.err
    assert "Optimizer._accelerator_graph_capture_health_check(self, stream=None) takes" in done.err


def test_compile_calls_operators_where_inductor_does_not_fit(check):
    done = check(
        """
        import torch
        import torch_loom
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen
        original = PythonWrapperCodegen.generate_return
        PythonWrapperCodegen.generate_return = lambda self, refs, form=None: original(self, refs)

        def program(x, y):
            return (x @ y).relu().sum(0), x.exp()

        def results(program, device):
            torch.manual_seed(0)
            x, y = (torch.randn(8, 8).to(device).requires_grad_() for _ in range(2))
            first, second = program(x, y)
            (first.sum() + second.sum()).backward()
            return [t.detach().cpu() for t in (first, second, x.grad, y.grad)]

        compiled = torch.compile(program, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(results(compiled, "loom"), results(program, "cpu"))
        assert compiled(*torch.ones(2, 4, 4).to("loom"))[0].tolist() == [16.0] * 4
        """,
        **NO_AUTOLOAD,
    )
    assert done.err.count("torch-loom:") == 1
    assert "does not suit loom: OutgrownError" in done.err
    assert "PythonWrapperCodegen.generate_return(self, refs, form=None) takes `form`" in done.err
