// SPDX-License-Identifier: BSD-3-Clause
#include "gil.h"

#include "loom/base/lock_checks.h"

#include <atomic>
#include <thread>
#include <unistd.h>

namespace loom::python {
namespace {

// The thread that ends the interpreter, once it has begun. Relaxed: what matters is whether it is
// the reader itself.
std::atomic<std::thread::id> g_ending_thread;

[[noreturn]] void sleep_for_ever() noexcept {
  for (;;) pause();
}

bool interpreter_ends() noexcept {
  if (Py_IsInitialized() == 0) return true;
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

void note_ending_thread() noexcept {
  g_ending_thread.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

bool interpreter_is_gone() noexcept {
  const std::thread::id ending = g_ending_thread.load(std::memory_order_relaxed);
  return ending != std::thread::id() && ending != std::this_thread::get_id() && interpreter_ends();
}

bool has_gil() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_GetUnchecked() != nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
  return _PyThreadState_UncheckedGet() != nullptr;
#else
  // The state that has the GIL, whichever thread's it is: only compared, as it may go at any time.
  const PyThreadState* const holder = _PyThreadState_UncheckedGet();
  return holder != nullptr && holder == PyGILState_GetThisThreadState();
#endif
}

WaitWithoutGil::~WaitWithoutGil() {
  if (python_thread_ && interpreter_is_gone()) sleep_for_ever();
}

GilRelease::~GilRelease() {
  if (interpreter_is_gone()) sleep_for_ever();
  lock_checks::takes_gil();
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    // No exception of anybody's: the end of this thread, as the interpreter has ended just now.
    sleep_for_ever();
  }
}

}  // namespace loom::python
