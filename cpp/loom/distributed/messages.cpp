// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ranks.
#include "loom/distributed/process_group.h"

#include <c10/util/Exception.h>

#include <memory>
#include <utility>

namespace loom::distributed {
namespace {

using c10d::OpType;
using collectives::Mailbox;
using collectives::Operation;
using collectives::Source;
using collectives::Target;

void check_peer(const char* name, int peer, int ranks) {
  TORCH_CHECK_VALUE(peer >= 0 && peer < ranks, name, ": expected a rank in [0, ", ranks, "), got ",
                    peer);
}

/// The request is made by the caller: messages belong to who has called first.
Command::Body receive_into(const Target& to, std::shared_ptr<Mailbox::Request> request) {
  return [to, request = std::move(request)](Engine& engine, const Operation& operation,
                                            Completion& completion) {
    completion.set_source(engine.mailbox().receive(*request, to.data, to.bytes, operation));
  };
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
  return launch({.name = "recv",
                 .type = OpType::RECV,
                 .way = Way::kFrom,
                 .peer = from,
                 .tag = tag,
                 .outputs = tensors},
                operands, receive_into(to, engine_->mailbox().request(from, tag)));
}

ProcessGroupLccl::WorkPtr ProcessGroupLccl::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  Operands operands("recv");
  const Target to = operands.write(tensor);
  return launch({.name = "recvAnySource",
                 .type = OpType::RECVANYSOURCE,
                 .way = Way::kFrom,
                 .peer = Mailbox::kAnybody,
                 .tag = tag,
                 .outputs = tensors},
                operands, receive_into(to, engine_->mailbox().request(Mailbox::kAnybody, tag)));
}

}  // namespace loom::distributed
