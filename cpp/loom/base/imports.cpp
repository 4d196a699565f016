// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/imports.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <elf.h>
#include <exception>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace loom {
namespace {

// The relocations that fill an entry with a function's address alone. PLT slots, other GOT entries,
// and pointers in data, of which those with an addend point elsewhere.
#if defined(__x86_64__)
constexpr std::array<std::uint32_t, 3> kAddressRelocations{R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT,
                                                           R_X86_64_64};
#elif defined(__aarch64__)
constexpr std::array<std::uint32_t, 3> kAddressRelocations{R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT,
                                                           R_AARCH64_ABS64};
#else
constexpr std::array<std::uint32_t, 0> kAddressRelocations{};
#endif

/// What the dynamic section of one library says about its imports.
struct Library {
  std::uintptr_t base = 0;
  std::string_view name;
  const char* strings = nullptr;
  const Elf64_Sym* symbols = nullptr;
  std::span<const Elf64_Rela> data_relocations;
  std::span<const Elf64_Rela> call_relocations;
  std::uintptr_t read_only_begin = 0;  ///< pages that the loader made read-only after relocation
  std::uintptr_t read_only_end = 0;
};

/// Writable for the lifetime of the object; read-only before and after it.
class WritablePage {
 public:
  WritablePage(std::uintptr_t begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {
    is_writable_ = mprotect(address(), bytes_, PROT_READ | PROT_WRITE) == 0;
  }
  ~WritablePage() {
    // A page that stays writable works as before.
    if (is_writable_) (void)mprotect(address(), bytes_, PROT_READ);
  }
  WritablePage(const WritablePage&) = delete;
  WritablePage& operator=(const WritablePage&) = delete;

  [[nodiscard]] bool is_writable() const noexcept { return is_writable_; }

 private:
  [[nodiscard]] void* address() const noexcept {
    return reinterpret_cast<void*>(begin_);  // NOLINT(performance-no-int-to-ptr)
  }

  std::uintptr_t begin_;
  std::size_t bytes_;
  bool is_writable_;
};

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// The loader of glibc writes addresses into the dynamic section, others leave offsets there.
template <class T>
const T* pointer(const Library& library, Elf64_Addr value) {
  const std::uintptr_t address = value < library.base ? library.base + value : value;
  return reinterpret_cast<const T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

Library describe(const dl_phdr_info& info) {
  Library library;
  library.base = info.dlpi_addr;
  library.name = info.dlpi_name != nullptr ? info.dlpi_name : "";
  const Elf64_Dyn* dynamic = nullptr;
  for (const auto& header : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    if (header.p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const Elf64_Dyn*>(  // NOLINT(performance-no-int-to-ptr)
          library.base + header.p_vaddr);
    } else if (header.p_type == PT_GNU_RELRO) {
      // The loader protects whole pages only: the last one may hold data that stay writable.
      const std::size_t page = page_bytes();
      library.read_only_begin = (library.base + header.p_vaddr) / page * page;
      library.read_only_end = (library.base + header.p_vaddr + header.p_memsz) / page * page;
    }
  }
  if (dynamic == nullptr) return library;
  const Elf64_Rela* data = nullptr;
  const Elf64_Rela* calls = nullptr;
  std::size_t data_bytes = 0;
  std::size_t call_bytes = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_STRTAB:
        library.strings = pointer<char>(library, dynamic->d_un.d_ptr);
        break;
      case DT_SYMTAB:
        library.symbols = pointer<Elf64_Sym>(library, dynamic->d_un.d_ptr);
        break;
      case DT_RELA:
        data = pointer<Elf64_Rela>(library, dynamic->d_un.d_ptr);
        break;
      case DT_RELASZ:
        data_bytes = dynamic->d_un.d_val;
        break;
      case DT_JMPREL:
        calls = pointer<Elf64_Rela>(library, dynamic->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        call_bytes = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  if (data != nullptr) library.data_relocations = {data, data_bytes / sizeof(Elf64_Rela)};
  if (calls != nullptr) library.call_relocations = {calls, call_bytes / sizeof(Elf64_Rela)};
  return library;
}

/// Writes one entry. Returns false if its page cannot be made writable.
bool write_entry(const Library& library, std::uintptr_t place, std::uintptr_t target) {
  // Relaxed: code is at either address from before the first write on, and the new function reads
  // nothing that is written for it. The store is one instruction, so that a call sees one of the
  // two addresses.
  const auto store = [&] {
    auto* entry = reinterpret_cast<std::uintptr_t*>(place);  // NOLINT(performance-no-int-to-ptr)
    std::atomic_ref(*entry).store(target, std::memory_order_relaxed);
  };
  if (place < library.read_only_begin || place >= library.read_only_end) {
    store();
    return true;
  }
  const std::size_t page = page_bytes();
  const WritablePage writable(place / page * page, page);
  if (writable.is_writable()) store();
  return writable.is_writable();
}

struct Walk {
  std::span<const ImportRedirect> redirects;
  std::span<const std::string_view> skipped_prefixes;
  RedirectedImports result;
};

void redirect(const Library& library, std::span<const Elf64_Rela> relocations, Walk& walk) {
  for (const Elf64_Rela& relocation : relocations) {
    const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
    if (relocation.r_addend != 0 ||
        std::ranges::find(kAddressRelocations, type) == std::ranges::end(kAddressRelocations)) {
      continue;
    }
    const Elf64_Sym& symbol = library.symbols[ELF64_R_SYM(relocation.r_info)];
    const std::string_view name = library.strings + symbol.st_name;
    const auto found = std::ranges::find(walk.redirects, name, &ImportRedirect::symbol);
    if (found == walk.redirects.end()) continue;
    const auto target = reinterpret_cast<std::uintptr_t>(found->target);
    if (!write_entry(library, library.base + relocation.r_offset, target)) {
      walk.result.problem =
          "the import table of " + std::string(library.name) + " is read-only: " + strerror(errno);
      return;
    }
    ++walk.result.entries;
  }
}

bool is_skipped(const Library& library, std::span<const std::string_view> prefixes) {
  const std::string_view file = library.name.substr(library.name.rfind('/') + 1);
  return std::ranges::any_of(prefixes, [&](auto prefix) { return file.starts_with(prefix); });
}

/// A callback of dl_iterate_phdr(), which holds the loader's lock: no library goes meanwhile.
/// Nothing may be thrown through the loader's C code.
int visit(dl_phdr_info* info, std::size_t /*bytes*/, void* context) noexcept {
  Walk& walk = *static_cast<Walk*>(context);
  try {
    const Library library = describe(*info);
    if (library.symbols == nullptr || library.strings == nullptr ||
        is_skipped(library, walk.skipped_prefixes)) {
      return 0;
    }
    redirect(library, library.call_relocations, walk);
    redirect(library, library.data_relocations, walk);
  } catch (const std::exception&) {
    walk.result.problem = "no memory is left";
  }
  return walk.result.problem.empty() ? 0 : 1;
}

}  // namespace

bool can_redirect_imports() noexcept { return !kAddressRelocations.empty(); }

std::uint64_t loaded_libraries() noexcept {
  std::uint64_t count = 0;
  const auto read = [](dl_phdr_info* info, std::size_t /*bytes*/, void* context) {
    *static_cast<std::uint64_t*>(context) = info->dlpi_adds;
    return 1;  // the same in every library
  };
  dl_iterate_phdr(read, &count);
  return count;
}

RedirectedImports redirect_imports(std::span<const ImportRedirect> redirects,
                                   std::span<const std::string_view> skipped_prefixes) {
  Walk walk{redirects, skipped_prefixes, {}};
  dl_iterate_phdr(&visit, &walk);
  return walk.result;
}

}  // namespace loom
