// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks.
#include "loom/distributed/process_group.h"

#include <c10/util/Exception.h>

namespace loom::distributed {
namespace {

using c10d::OpType;
using collectives::Operation;
using collectives::Source;
using collectives::Target;

const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, ": expected one tensor, got ", tensors.size());
  return tensors.front();
}

void check_peer(const char* name, int peer, int ranks) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < ranks, name, ": expected a rank in [0, ", ranks, "), got ",
                    peer);
}

}  // namespace

ProcessGroupLccl::WorkPtr ProcessGroupLccl::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  check_peer("send", to, size_);
  Operands operands("send");
  const Source from = operands.read(tensor);
  return launch({.name = "send", .type = OpType::SEND, .way = Way::kTo, .peer = to}, operands,
                [from, to, tag](Engine& engine, const Operation& operation, Completion&) {
                  engine.mailbox().send(to, tag, from.data, from.bytes, operation);
                });
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  check_peer("recv", from, size_);
  Operands operands("recv");
  const Target to = operands.write(tensor);
  return launch(
      {.name = "recv", .type = OpType::RECV, .way = Way::kFrom, .peer = from, .outputs = tensors},
      operands,
      [from, to, tag](Engine& engine, const Operation& operation, Completion& completion) {
        engine.mailbox().receive(from, tag, to.data, to.bytes, operation);
        completion.set_source(from);
      });
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  Operands operands("recv");
  const Target to = operands.write(tensor);
  return launch(
      {.name = "recv",
       .type = OpType::RECVANYSOURCE,
       .way = Way::kFrom,
       .peer = -1,
       .outputs = tensors},
      operands, [to, tag](Engine& engine, const Operation& operation, Completion& completion) {
        completion.set_source(engine.mailbox().receive_any(tag, to.data, to.bytes, operation));
      });
}

}  // namespace loom::distributed
