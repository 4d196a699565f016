// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Commands in the order they were appended, stored in place in chunks: no heap allocation per
// command in the common case. One producer at a time appends (the queue holds its lock), one
// consumer walks; they share no state but the chunks' contents and links, whose publication is the
// queue's business (it publishes a count of commands with release order), and the list of spare
// chunks. A buffer that is not consumed is a list that can be visited again and again.

#include "loom/base/export.h"
#include "loom/base/float_mode.h"
#include "loom/base/mutex.h"
#include "loom/base/prefetch.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace loom {

struct CommandRecord;
class Failure;

/// What a command does with a piece of memory.
enum class AccessKind : std::uint8_t {
  kRead,
  kUpdate,   ///< writes some of it, or writes what depends on what it held
  kReplace,  ///< writes every byte, whatever it held
};

/// One piece of device memory that a command touches.
struct Access {
  const void* address;
  std::size_t bytes;
  AccessKind kind;

  [[nodiscard]] bool writes() const noexcept { return kind != AccessKind::kRead; }
  /// Whether what the command writes depends on what the memory held.
  [[nodiscard]] bool reads() const noexcept { return kind != AccessKind::kReplace; }
};
using AccessList = std::vector<Access>;

namespace detail {

/// What can be done with a callable whose type is forgotten.
struct CommandOps {
  void (*run)(void* callable);
  void (*destroy)(void* callable) noexcept;
  void (*accesses)(const void* callable, AccessList& list);
  const char* (*label)(const void* callable);
  void (*run_checked)(void* callable);  ///< null: the callable leaves the checks to its queue
  void (*failed)(void* callable, const std::shared_ptr<Failure>& failure);
};

template <class Callable>
inline constexpr CommandOps kCommandOps = {
    [](void* callable) { (*static_cast<Callable*>(callable))(); },
    [](void* callable) noexcept { static_cast<Callable*>(callable)->~Callable(); },
    [](const void* callable, AccessList& list) {
      if constexpr (requires(const Callable& c) { c.accesses(list); }) {
        static_cast<const Callable*>(callable)->accesses(list);
      }
    },
    [](const void* callable) -> const char* {
      if constexpr (requires(const Callable& c) { c.label(); }) {
        return static_cast<const Callable*>(callable)->label();
      } else {
        return nullptr;
      }
    },
    []() -> void (*)(void*) {
      if constexpr (requires(Callable& c) { c.run_checked(); }) {
        return [](void* callable) { static_cast<Callable*>(callable)->run_checked(); };
      } else {
        return nullptr;
      }
    }(),
    [](void* callable, const std::shared_ptr<Failure>& failure) {
      if constexpr (requires(Callable& c) { c.failed(failure); }) {
        static_cast<Callable*>(callable)->failed(failure);
      }
    }};

/// Stands before each callable. Without `ops` it is no command but the end of its chunk.
struct CommandHeader {
  const CommandOps* ops;
  const char* name;
  CommandRecord* record;          ///< what a trace notes of the command, or null
  std::uint16_t callable_offset;  ///< bytes from the header to the callable
  FloatMode float_mode;           ///< of its submission
  std::uint32_t next_offset;      ///< bytes from the header to the next one
};

}  // namespace detail

/// One stored command; a view that is valid until the command is popped.
class Command {
 public:
  explicit Command(detail::CommandHeader* header) noexcept : header_(header) {}

  /// Calls the callable. It may be called again, unless the callable forbids it.
  void run() const { header_->ops->run(callable()); }
  /// Appends the device memory that the command touches.
  void accesses(AccessList& list) const { header_->ops->accesses(callable(), list); }
  /// Whether the callable itself looks for failed memory in its parts, by run_checked().
  [[nodiscard]] bool checks_itself() const noexcept { return header_->ops->run_checked != nullptr; }
  void run_checked() const { header_->ops->run_checked(callable()); }
  /// Tells the callable that it failed or will not run.
  void note_failed(const std::shared_ptr<Failure>& failure) const {
    header_->ops->failed(callable(), failure);
  }
  [[nodiscard]] const char* name() const noexcept { return header_->name; }
  /// What profiles call the command, if it knows that only when it runs; else null. It lives for
  /// ever.
  [[nodiscard]] const char* label() const { return header_->ops->label(callable()); }
  [[nodiscard]] CommandRecord* record() const noexcept { return header_->record; }
  /// How the thread that appended the command computes, and whoever runs it is to.
  [[nodiscard]] FloatMode float_mode() const noexcept { return header_->float_mode; }

 private:
  friend class CommandBuffer;
  [[nodiscard]] void* callable() const noexcept {
    return reinterpret_cast<std::byte*>(header_) + header_->callable_offset;
  }
  detail::CommandHeader* header_;
};

class LOOM_API CommandBuffer {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 10;
  /// Callables may ask for this alignment at most.
  static constexpr std::size_t kMaxAlignment = 64;

  CommandBuffer();
  /// Destroys the commands that were not popped.
  ~CommandBuffer();
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;

  /// Stores a command, with the calling thread's mode of submission (float_mode.h); when it throws,
  /// the buffer is as before. Thread: the producer.
  template <class Callable>
  void append(const char* name, Callable&& callable, CommandRecord* record = nullptr);

  /// The oldest command. Requires: there is one, published to this thread. Thread: the consumer.
  [[nodiscard]] Command front() noexcept;
  /// Destroys the oldest command and recycles its memory. Requires: as front().
  void pop() noexcept;

  /// Calls `visit(Command)` for each command, oldest first, and keeps them.
  /// Requires: nobody appends or pops meanwhile.
  template <class Visit>
  void for_each(Visit&& visit);

 private:
  struct Chunk;
  // A place between two commands. The two cursors are on cache lines of their own, since the
  // producer and the consumer write theirs at every command.
  struct alignas(64) Cursor {
    Chunk* chunk = nullptr;
    std::size_t offset = 0;
  };

  [[nodiscard]] static detail::CommandHeader* header_at(const Cursor& cursor) noexcept;
  static void follow_link(Cursor& cursor) noexcept;
  [[nodiscard]] bool fits(std::size_t bytes) const noexcept;
  void link_new_chunk(std::size_t bytes);
  [[nodiscard]] Chunk* take_chunk(std::size_t bytes);
  void recycle(Chunk* chunk) noexcept;

  Cursor write_;
  Cursor read_;
  Mutex spare_mutex_;
  Chunk* spare_ LOOM_GUARDED_BY(spare_mutex_) = nullptr;
  std::size_t spare_count_ LOOM_GUARDED_BY(spare_mutex_) = 0;
};

struct CommandBuffer::Chunk {
  Chunk* next = nullptr;
  std::size_t bytes = 0;  ///< from this object's start
};

inline detail::CommandHeader* CommandBuffer::header_at(const Cursor& cursor) noexcept {
  return reinterpret_cast<detail::CommandHeader*>(reinterpret_cast<std::byte*>(cursor.chunk) +
                                                  cursor.offset);
}

// Room for one more header is always kept, for the one that ends the chunk.
inline bool CommandBuffer::fits(std::size_t bytes) const noexcept {
  return write_.chunk != nullptr &&
         write_.offset + bytes + sizeof(detail::CommandHeader) <= write_.chunk->bytes;
}

template <class Callable>
void CommandBuffer::append(const char* name, Callable&& callable, CommandRecord* record) {
  using Stored = std::decay_t<Callable>;
  using Header = detail::CommandHeader;
  static_assert(alignof(Stored) <= kMaxAlignment);
  constexpr std::size_t kAlignment = alignof(Stored) > 16 ? kMaxAlignment : 16;
  // An upper bound of what is needed wherever the header falls: headers are at multiples of 16.
  constexpr std::size_t kPadding = kAlignment - 16;
  constexpr std::size_t kBytes = (sizeof(Header) + kPadding + sizeof(Stored) + 15) / 16 * 16;
  static_assert(sizeof(Header) % 16 == 0);
  static_assert(kBytes < UINT32_MAX);
  if (!fits(kBytes)) [[unlikely]] {
    link_new_chunk(kBytes);
  }
  // Chunks are aligned to kMaxAlignment, so offsets in them are as good as addresses.
  const std::size_t start = write_.offset;
  const std::size_t place = (start + sizeof(Header) + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t end = (place + sizeof(Stored) + 15) / 16 * 16;
  std::byte* const chunk = reinterpret_cast<std::byte*>(write_.chunk);
  ::new (chunk + place) Stored(std::forward<Callable>(callable));
  ::new (chunk + start) Header{&detail::kCommandOps<Stored>,
                               name,
                               record,
                               static_cast<std::uint16_t>(place - start),
                               FloatMode::of_submission(),
                               static_cast<std::uint32_t>(end - start)};
  write_.offset = end;
  // The next one's place is in the consumer's cache, from its last use.
  for (std::size_t line = 0; line < kBytes; line += 64) prefetch_for_write(chunk + end + line);
}

inline Command CommandBuffer::front() noexcept {
  detail::CommandHeader* header = header_at(read_);
  // A chunk may hold nothing but a link, where the command threw that it was made for.
  while (header->ops == nullptr) [[unlikely]] {
    Chunk* const finished = read_.chunk;
    follow_link(read_);
    recycle(finished);
    header = header_at(read_);
  }
  return Command(header);
}

inline void CommandBuffer::pop() noexcept {
  const Command command = front();
  const std::size_t bytes = command.header_->next_offset;
  command.header_->ops->destroy(command.callable());
  read_.offset += bytes;
}

template <class Visit>
void CommandBuffer::for_each(Visit&& visit) {
  Cursor cursor = read_;
  while (cursor.chunk != write_.chunk || cursor.offset != write_.offset) {
    detail::CommandHeader* header = header_at(cursor);
    if (header->ops == nullptr) {
      follow_link(cursor);
      continue;
    }
    visit(Command(header));
    cursor.offset += header->next_offset;
  }
}

}  // namespace loom
