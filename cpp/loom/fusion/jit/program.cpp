// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/program.h"

#include "loom/fusion/vector_math.h"

#include <algorithm>

namespace loom::fusion::jit {
namespace {

using Xbyak::Label;
using Xbyak::Reg64;

std::size_t accumulator_bytes(const Body& body, const Plan& plan) {
  std::size_t most = 0;
  for (const Phase& phase : plan.phases) {
    std::size_t bytes = 0;
    for (const std::uint8_t i : phase.loop.reductions) {
      bytes += static_cast<std::size_t>(kReductionLanes) * size_of(body.instructions[i].type);
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

Program::Program(const Body& body, std::span<const std::uint32_t> constants, const Plan& plan,
                 VectorCode& code)
    : body_(body),
      constants_(constants),
      plan_(plan),
      code_(code),
      frame_(body.inputs.size() + body.outputs.size() + plan.stashed.size(), body.value_count(),
             accumulator_bytes(body, plan)),
      registers_(code, plan, frame_),
      is_bfloat16_(find_bfloat16()) {
  pointer_registers_.fill(-1);
  code.set_work_memory(frame(Frame::work()));
}

/// Values of which the lower half of the bits is surely 0.
std::vector<bool> Program::find_bfloat16() const {
  std::vector<bool> found(body_.value_count(), false);
  for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
    found[i] = body_.inputs[i].dtype == DType::kBFloat16;
  }
  std::size_t self = body_.first_result();
  for (const Instruction& i : body_.instructions) {
    switch (i.op) {
      case Op::kRoundBFloat16:
        found[self] = true;
        break;
      case Op::kNeg:
      case Op::kAbs:
        found[self] = i.type == Type::kFloat && found[i.a];
        break;
      case Op::kMaximum:
      case Op::kMinimum:
        found[self] = i.type == Type::kFloat && found[i.a] && found[i.b];
        break;
      case Op::kSelect:
        found[self] = i.type == Type::kFloat && found[i.b] && found[i.c];
        break;
      default:
        break;
    }
    ++self;
  }
  return found;
}

void Program::emit() {
  emit_prologue();
  emit_uniform(plan_.before_rows);
  Label next_row;
  code_.L(next_row);
  for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
    if (plan_.needed[i] && body_.inputs[i].uniform) load_uniform_input(i);
  }
  for (const Phase& phase : plan_.phases) {
    emit_uniform(phase.uniform);
    emit_loop(phase.loop);
  }
  for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
    if (body_.outputs[i].uniform) store_uniform_output(body_.outputs[i], i);
  }
  code_.dec(code_.qword[frame(Frame::rows_left())]);
  Label done;
  code_.jz(done, Xbyak::CodeGenerator::T_NEAR);
  advance_rows();
  code_.jmp(next_row);
  code_.L(done);
  emit_epilogue();
}

void Program::emit_prologue() {
  auto& c = code_;
  c.endbr64();
  for (const Reg64& saved : {c.rbp, c.rbx, c.r12, c.r13, c.r14, c.r15}) c.push(saved);
  c.mov(c.rbp, c.rsp);
  frame_bytes_at_ = c.getSize() + 1;  // behind the opcode
  c.mov(c.eax, 0x7FFFFFFF);
  c.sub(c.rsp, c.rax);
  c.and_(c.rsp, -64);
  c.mov(c.ptr[frame(Frame::arguments())], c.rdi);
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, rows)]);
  c.mov(c.ptr[frame(Frame::rows_left())], c.rax);
  c.mov(c.r12, c.ptr[c.rdi + offsetof(Arguments, columns)]);
  c.mov(c.r15, reinterpret_cast<std::size_t>(&kConstants));
  copy_parameters();
  copy_addresses();
}

void Program::emit_epilogue() {
  auto& c = code_;
  if (body_.streaming) c.sfence();
  c.vzeroupper();
  c.mov(c.rsp, c.rbp);
  for (const Reg64& saved : {c.r15, c.r14, c.r13, c.r12, c.rbx, c.rbp}) c.pop(saved);
  c.ret();
  c.rewrite(frame_bytes_at_, static_cast<std::uint64_t>(frame_.bytes()), 4);
}

void Program::copy_parameters() {
  auto& c = code_;
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, params)]);
  const std::size_t given = body_.params.size() - constants_.size();
  for (std::size_t i = 0; i < body_.params.size(); ++i) {
    const auto value = static_cast<ValueId>(body_.first_param() + i);
    if (!plan_.needed[value]) continue;
    if (i >= given) {
      c.mov(c.dword[frame(frame_.home(value))], constants_[i - given]);
      continue;
    }
    const auto param = c.rax + static_cast<int>(sizeof(Param) * i);
    if (body_.params[i] == Type::kMask) {
      c.movzx(c.ecx, c.byte[param]);
      c.neg(c.rcx);
    } else if (size_of(body_.params[i]) == 8) {
      c.mov(c.rcx, c.ptr[param]);
    } else {
      c.mov(c.ecx, c.ptr[param]);
    }
    c.mov(c.ptr[frame(frame_.home(value))], c.rcx);
  }
}

void Program::copy_addresses() {
  auto& c = code_;
  const std::size_t inputs = body_.inputs.size(), outputs = body_.outputs.size();
  const auto copy = [&](std::size_t count, std::size_t first) {
    for (std::size_t i = 0; i < count; ++i) {
      c.mov(c.rcx, c.ptr[c.rax + static_cast<int>(sizeof(Place) * i)]);
      c.mov(c.ptr[frame(Frame::pointer(first + i))], c.rcx);
    }
  };
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, inputs)]);
  copy(inputs, 0);
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, outputs)]);
  copy(outputs, inputs);
  if (plan_.stashed.empty()) return;
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, scratch)]);
  // Whole vectors are kept, from any element on where loops begin with a head.
  const int beyond = body_.aligned ? 0 : static_cast<int>(kReductionLanes);
  c.lea(c.rcx, c.ptr[c.r12 + (kReductionLanes - 1 + beyond)]);
  c.and_(c.rcx, -kReductionLanes);
  for (std::size_t i = 0; i < plan_.stashed.size(); ++i) {
    c.mov(c.ptr[frame(Frame::pointer(inputs + outputs + i))], c.rax);
    c.lea(c.rax, c.ptr[c.rax + c.rcx * static_cast<int>(size_of(type_of(plan_.stashed[i])))]);
  }
}

void Program::advance_rows() {
  auto& c = code_;
  const auto advance = [&](std::size_t count, std::size_t first) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = c.rax + static_cast<int>(sizeof(Place) * i + offsetof(Place, row_stride));
      c.mov(c.rcx, c.ptr[place]);
      c.add(c.ptr[frame(Frame::pointer(first + i))], c.rcx);
    }
  };
  c.mov(c.rdi, c.ptr[frame(Frame::arguments())]);
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, inputs)]);
  advance(body_.inputs.size(), 0);
  c.mov(c.rax, c.ptr[c.rdi + offsetof(Arguments, outputs)]);
  advance(body_.outputs.size(), body_.inputs.size());
}

void Program::load_uniform_input(std::size_t input) {
  auto& c = code_;
  const auto home = frame(frame_.home(static_cast<ValueId>(input)));
  const Xbyak::Xmm x(0);
  c.mov(c.rax, c.ptr[frame(Frame::pointer(input))]);
  switch (body_.inputs[input].dtype) {
    case DType::kBool:
      c.xor_(c.ecx, c.ecx);
      c.cmp(c.byte[c.rax], 1);
      c.cmc();
      c.sbb(c.rcx, c.rcx);  // all bits, unless the byte is 0
      break;
    case DType::kUInt8:
      c.movzx(c.ecx, c.byte[c.rax]);
      break;
    case DType::kInt8:
      c.movsx(c.ecx, c.byte[c.rax]);
      break;
    case DType::kInt16:
      c.movsx(c.ecx, c.word[c.rax]);
      break;
    case DType::kHalf:
      c.movzx(c.ecx, c.word[c.rax]);
      c.vmovd(x, c.ecx);
      c.vcvtph2ps(x, x);
      c.vmovd(c.ecx, x);
      break;
    case DType::kBFloat16:
      c.movzx(c.ecx, c.word[c.rax]);
      c.shl(c.ecx, 16);
      break;
    case DType::kInt64:
    case DType::kDouble:
      c.mov(c.rcx, c.ptr[c.rax]);
      break;
    default:
      c.mov(c.ecx, c.ptr[c.rax]);
      break;
  }
  c.mov(c.ptr[home], c.rcx);
}

void Program::store_uniform_output(const Output& output, std::size_t index) {
  auto& c = code_;
  const Xbyak::Xmm x(0);
  c.mov(c.rcx, c.ptr[frame(frame_.home(output.value))]);
  if (output.dtype == DType::kHalf) {
    constexpr int kToNearest = 0;
    c.vmovd(x, c.ecx);
    c.vcvtps2ph(x, x, kToNearest);
    c.vmovd(c.ecx, x);
  } else if (output.dtype == DType::kBFloat16) {
    const Instruction rounding{.op = Op::kRoundBFloat16, .type = Type::kFloat};
    c.broadcast(Type::kFloat, 0, frame(frame_.home(output.value)));
    c.compute(rounding, 0, 0, 0, 0);
    c.vmovd(c.ecx, x);
    c.shr(c.ecx, 16);
  } else if (output.dtype == DType::kBool) {
    c.and_(c.ecx, 1);
  }
  c.mov(c.rax, c.ptr[frame(Frame::pointer(body_.inputs.size() + index))]);
  switch (fusion::size_of(output.dtype)) {
    case 1:
      return c.mov(c.byte[c.rax], c.cl);
    case 2:
      return c.mov(c.word[c.rax], c.cx);
    case 4:
      return c.mov(c.dword[c.rax], c.ecx);
    default:
      return c.mov(c.qword[c.rax], c.rcx);
  }
}

void Program::emit_uniform(const std::vector<Item>& items) {
  registers_.prepare(items, 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    emit_compute(items[i], i, Access::kWhole);
  }
}

}  // namespace loom::fusion::jit
