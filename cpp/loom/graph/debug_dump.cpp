// SPDX-License-Identifier: BSD-3-Clause
#include "loom/graph/captured_graph.h"
#include "loom/graph/graph.h"

#include <c10/util/Exception.h>

#include <fstream>

namespace loom::graph {
namespace {

void write_accesses(std::ostream& file, const AccessList& accesses) {
  for (const Access& access : accesses) {
    file << "\\n"
         << (access.writes() ? "writes " : "reads ") << access.bytes << " at " << access.address;
  }
}

}  // namespace

void dump(CapturedGraph& graph, const std::string& path) {
  std::ofstream file(path);
  file << "digraph loom {\n  node [shape=box];\n";
  std::size_t number = 0;
  graph.for_each([&](const Command& command) {
    AccessList accesses;
    command.accesses(accesses);
    const char* const label = command.label();
    file << "  n" << number << " [label=\"" << (label != nullptr ? label : command.name());
    write_accesses(file, accesses);
    file << "\"];\n";
    if (number > 0) file << "  n" << number - 1 << " -> n" << number << ";\n";
    ++number;
  });
  file << "}\n";
  TORCH_CHECK(file.flush(), "Graph.debug_dump: expected a path that can be written, got ", path);
}

}  // namespace loom::graph
