// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The GIL on threads that outlive the interpreter. Python ends while daemon threads still run; one
// of them that wants the GIL back then never gets it, and Python (before 3.14) ends the thread by
// unwinding its stack. Through a destructor, as pybind11's gil_scoped_release has it, or through
// PyTorch's handlers of exceptions, that ends the process with std::terminate. Such a thread sleeps
// for ever instead, and the process ends without it.

#include <torch/csrc/utils/pybind.h>

namespace loom::python {

/// To be called by the thread that ends the interpreter, before it does: it alone goes on then.
void note_ending_thread() noexcept;

/// Whether the calling thread will not get the GIL any more: the interpreter ends or has ended, by
/// another thread.
[[nodiscard]] bool interpreter_is_gone() noexcept;

/// Whether the calling thread has the GIL; in free-threaded Python, whether it is attached to an
/// interpreter. PyGILState_Check() cannot tell: it says yes for good once the process has made a
/// second interpreter. On a thread that runs a second interpreter, Python before 3.12 does not tell
/// either, and the answer is no: what waits then keeps the GIL.
[[nodiscard]] bool has_gil() noexcept;

/// Around a wait without the GIL: where a thread of Python's whose interpreter is gone at the end
/// sleeps for ever, since its callers would want the GIL back. Requires: the interpreter runs.
class WaitWithoutGil {
 public:
  WaitWithoutGil() noexcept : python_thread_(PyGILState_GetThisThreadState() != nullptr) {}
  ~WaitWithoutGil();
  WaitWithoutGil(const WaitWithoutGil&) = delete;
  WaitWithoutGil& operator=(const WaitWithoutGil&) = delete;

 private:
  const bool python_thread_;
};

/// Releases the GIL for a scope, in place of pybind11's gil_scoped_release.
/// Requires: the GIL is held.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace loom::python
