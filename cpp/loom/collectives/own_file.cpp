// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/own_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace loom::collectives {
namespace {

/// The openings of this process.
class Openings {
 public:
  // Leaked: files may outlive static destruction.
  static Openings& instance() {
    static auto* const all = new Openings;
    return *all;
  }

  int open(const std::string& path) {
    const std::lock_guard lock(mutex_);
    files_.reserve(files_.size() + 1);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) throw std::system_error(errno, std::generic_category(), "OwnFile: open");
    files_.push_back(file);
    return file;
  }
  void close(int file) noexcept {
    const std::lock_guard lock(mutex_);
    if (std::erase(files_, file) != 0) ::close(file);
  }
  bool has(int file) noexcept {
    const std::lock_guard lock(mutex_);
    return std::find(files_.begin(), files_.end(), file) != files_.end();
  }

 private:
  Openings() {
    // The lock is held over the fork, so that the child finds the list whole.
    const int error = ::pthread_atfork([] { instance().mutex_.lock(); },
                                       [] { instance().mutex_.unlock(); }, &close_all);
    if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_atfork");
  }
  // In the child's one thread.
  static void close_all() {
    for (const int file : instance().files_) ::close(file);
    instance().files_.clear();
    instance().mutex_.unlock();
  }

  std::mutex mutex_;  // not one of loom's, which throw in a child
  std::vector<int> files_;
};

}  // namespace

OwnFile::OwnFile(const std::string& path) : value_(Openings::instance().open(path)) {}

OwnFile::~OwnFile() { Openings::instance().close(value_); }

int OwnFile::get() const noexcept { return Openings::instance().has(value_) ? value_ : -1; }

}  // namespace loom::collectives
