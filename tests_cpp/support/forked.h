// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a child of fork() does, told by its exit code.

#include <gtest/gtest.h>

#include "support/child.h"
#include <sys/wait.h>
#include <unistd.h>

namespace loom::testing {

/// Runs `body` in a forked process and returns the code with which it exits; a child that hangs is
/// ended by a signal, which counts as a failure.
template <class Body>
int exit_code_of_fork(Body&& body) {
  constexpr unsigned kPatienceSeconds = 60;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceSeconds);
    finish(body);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "status " << status;
  return WEXITSTATUS(status);
}

}  // namespace loom::testing
