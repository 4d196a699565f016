// SPDX-License-Identifier: BSD-3-Clause
#include "loom/memory/caching_allocator.h"

#include "bindings.h"

namespace loom::python {

void bind_graph(pybind11::module_& module) {
  module.def("_graph_pool_handle", &CachingAllocator::new_pool_id);
}

}  // namespace loom::python
