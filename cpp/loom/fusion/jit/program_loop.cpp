// SPDX-License-Identifier: BSD-3-Clause
// The loops over the columns of a row.
#include "loom/fusion/jit/program.h"
#include "loom/fusion/vector_math.h"

#include <algorithm>
#include <bit>

namespace loom::fusion::jit {
namespace {

using Xbyak::Label;

/// Items that a round of an unrolled loop may have.
constexpr int kRoundItems = 64;

}  // namespace

Program::Shape Program::shape_of(const Loop& loop) const {
  const int items = static_cast<int>(loop.items.size());
  if (loop.calls) return {};
  if (!loop.reductions.empty()) {
    // A round is all lanes of the reductions; or else one vector, and accumulators in memory.
    const int copies = static_cast<int>(kReductionLanes) / code_.lanes();
    const int accumulators = copies * static_cast<int>(loop.reductions.size());
    const bool fits = items * copies <= kRoundItems && accumulators <= code_.vector_registers() / 2;
    return fits ? Shape{.copies = copies, .accumulators = accumulators} : Shape{};
  }
  if (items * 4 <= kRoundItems / 2) return {.copies = 4};
  return {.copies = items * 2 <= kRoundItems ? 2 : 1};
}

int Program::accumulator_memory(const Loop& loop, std::size_t place) const {
  int offset = frame_.accumulators();
  for (std::size_t i = 0; i < place; ++i) {
    const Type type = body_.instructions[loop.reductions[i]].type;
    offset += static_cast<int>(kReductionLanes) * static_cast<int>(size_of(type));
  }
  return offset;
}

int Program::accumulator_register(const Loop& loop, const Shape& shape, std::size_t place,
                                  int copy) const {
  const int each = shape.accumulators / static_cast<int>(loop.reductions.size());
  return code_.vector_registers() - shape.accumulators + static_cast<int>(place) * each + copy;
}

std::size_t Program::pointer_of(const Item& item) const {
  const std::size_t inputs = body_.inputs.size(), outputs = body_.outputs.size();
  switch (item.kind) {
    case Item::Kind::kLoad:
      return item.index;
    case Item::Kind::kStore:
      return inputs + item.index;
    default:
      return inputs + outputs + item.index;
  }
}

void Program::choose_pointers(const Loop& loop) {
  using Code = Xbyak::Operand;
  constexpr std::array kFree = {Code::R13, Code::RDX, Code::RSI, Code::RDI,
                                Code::R8,  Code::R9,  Code::R10, Code::R11};
  const std::size_t count = loop.calls ? 1 : kFree.size();
  std::size_t used = 0;
  pointer_registers_.fill(-1);
  for (const Item& item : loop.items) {
    if (item.kind == Item::Kind::kCompute || item.kind == Item::Kind::kAccumulate) continue;
    const std::size_t pointer = pointer_of(item);
    if (used == count || pointer_registers_[pointer] >= 0) continue;
    pointer_registers_[pointer] = kFree[used++];
    code_.mov(Xbyak::Reg64(pointer_registers_[pointer]), code_.ptr[frame(Frame::pointer(pointer))]);
  }
}

VectorCode::Address Program::address(const Item& item, std::size_t element_bytes, int copy) {
  const std::size_t pointer = pointer_of(item);
  const int size = static_cast<int>(element_bytes);
  int base = pointer_registers_[pointer];
  if (base < 0) {
    base = Xbyak::Operand::RAX;
    code_.mov(code_.rax, code_.ptr[frame(Frame::pointer(pointer))]);
  }
  return Xbyak::Reg64(base) + code_.rbx * size + copy * code_.lanes() * size;
}

void Program::emit_loop(const Loop& loop) {
  if (loop.items.empty()) return;
  auto& c = code_;
  const Shape shape = shape_of(loop);
  const int round = shape.copies * c.lanes();
  choose_pointers(loop);
  start_accumulators(loop, shape);
  registers_.prepare(loop.items, shape.accumulators);
  if (!loop.calls) registers_.pin_uniform_values();
  Label rounds, rest, vectors, tail, done;
  const bool streaming = streams(loop), head = streaming && !body_.aligned;
  // r14 is where whole steps of `size` elements end, of those from rbx on.
  const auto find_end = [&](int size) {
    c.mov(c.r14, c.r12);
    if (head) c.sub(c.r14, c.rbx);
    c.and_(c.r14, -size);
    if (head) c.add(c.r14, c.rbx);
  };
  c.xor_(c.ebx, c.ebx);
  if (head) emit_head(loop);
  find_end(round);
  c.cmp(c.rbx, c.r14);
  c.jae(rest, Xbyak::CodeGenerator::T_NEAR);
  c.align(32);
  c.L(rounds);
  const Access whole = streaming ? Access::kStreaming : Access::kWhole;
  for (int copy = 0; copy < shape.copies; ++copy) emit_step(loop, shape, copy, whole);
  c.add(c.rbx, round);
  c.cmp(c.rbx, c.r14);
  c.jb(rounds);
  c.L(rest);
  save_accumulators(loop, shape);
  c.cmp(c.rbx, c.r12);
  c.jae(done, Xbyak::CodeGenerator::T_NEAR);
  if (shape.copies > 1) {
    // Short rows have no rounds: without masks a vector takes a fraction of the time.
    find_end(c.lanes());
    c.cmp(c.rbx, c.r14);
    c.jae(tail, Xbyak::CodeGenerator::T_NEAR);
    c.L(vectors);
    emit_step(loop, Shape{}, 0, Access::kWhole);
    c.add(c.rbx, c.lanes());
    c.cmp(c.rbx, c.r14);
    c.jb(vectors);
    c.cmp(c.rbx, c.r12);
    c.jae(done, Xbyak::CodeGenerator::T_NEAR);
  }
  c.L(tail);
  c.mov(c.ecx, c.r12d);
  c.sub(c.ecx, c.ebx);
  c.set_tail();
  emit_step(loop, Shape{}, 0, Access::kTail);
  c.L(done);
  fold_accumulators(loop);
}

bool Program::streams(const Loop& loop) const {
  if (!body_.streaming || body_.aligned) return body_.streaming;
  // Which lane an element is summed up in does not depend on where the row lies, and masks that are
  // kept from one loop to the next are bits of a vector.
  const bool masks = std::any_of(plan_.stashed.begin(), plan_.stashed.end(),
                                 [&](ValueId value) { return type_of(value) == Type::kMask; });
  return !masks && loop.reductions.empty() &&
         std::any_of(loop.items.begin(), loop.items.end(),
                     [](const Item& item) { return item.kind == Item::Kind::kStore; });
}

void Program::count_head(const Loop& loop) {
  auto& c = code_;
  const auto store = std::find_if(loop.items.begin(), loop.items.end(),
                                  [](const Item& item) { return item.kind == Item::Kind::kStore; });
  const auto size = static_cast<unsigned>(fusion::size_of(body_.outputs[store->index].dtype));
  constexpr int kLine = 64;
  c.mov(c.rcx, c.ptr[frame(Frame::pointer(pointer_of(*store)))]);
  c.neg(c.rcx);
  c.and_(c.ecx, kLine - 1);
  if (size > 1) c.shr(c.ecx, std::countr_zero(size));
  c.cmp(c.rcx, c.r12);
  c.cmova(c.rcx, c.r12);
}

void Program::emit_head(const Loop& loop) {
  auto& c = code_;
  Label next, done;
  c.L(next);
  count_head(loop);
  c.cmp(c.rbx, c.rcx);
  c.jae(done, Xbyak::CodeGenerator::T_NEAR);
  c.sub(c.rcx, c.rbx);
  c.set_tail();
  emit_step(loop, Shape{}, 0, Access::kTail);
  c.add(c.rbx, c.lanes());
  c.jmp(next, Xbyak::CodeGenerator::T_NEAR);
  c.L(done);
  c.mov(c.rbx, c.rcx);
}

void Program::emit_step(const Loop& loop, const Shape& shape, int copy, Access access) {
  registers_.restart();
  for (std::size_t i = 0; i < loop.items.size(); ++i) emit_item(loop, shape, i, copy, access);
}

void Program::emit_item(const Loop& loop, const Shape& shape, std::size_t i, int copy,
                        Access access) {
  const Item& item = loop.items[i];
  if (item.kind == Item::Kind::kCompute) return emit_compute(item, i, access);
  const std::array<int, 3> operands = registers_.operands(i);
  switch (item.kind) {
    case Item::Kind::kLoad: {
      const DType dtype = body_.inputs[item.index].dtype;
      code_.load(dtype, registers_.result(i), address(item, fusion::size_of(dtype), copy), access);
      break;
    }
    case Item::Kind::kStore: {
      const DType dtype = body_.outputs[item.index].dtype;
      code_.store(dtype, operands[0], address(item, fusion::size_of(dtype), copy), access,
                  is_bfloat16_[item.operands[0]]);
      break;
    }
    case Item::Kind::kUnstash: {
      const Type type = type_of(item.result);
      code_.fill(type, registers_.result(i), address(item, size_of(type), copy));
      break;
    }
    case Item::Kind::kStash: {
      const Type type = type_of(item.operands[0]);
      code_.spill(type, operands[0], address(item, size_of(type), copy));
      break;
    }
    default:
      emit_accumulate(loop, shape, item, operands[0], copy, access);
  }
  registers_.finish(i);
}

void Program::emit_compute(const Item& item, std::size_t i, Access access) {
  const Instruction& instruction = body_.instructions[item.index];
  const Type type = instruction.type;
  const std::array<int, 3> operands = registers_.operands(i);
  int result = 0;
  if (is_function(instruction.op)) {
    registers_.save_for_call(i);
    if (item.operand_count == 2) {
      code_.move(type, code_.scratch(), operands[1]);
      code_.move(type, 0, operands[0]);
      code_.move(type, 1, code_.scratch());
    } else {
      code_.move(type, 0, operands[0]);
    }
    code_.mov(code_.rax,
              reinterpret_cast<std::size_t>(vector_function(instruction.op, instruction.type)));
    code_.call(code_.rax);
    if (access == Access::kTail) code_.restore_tail();
    registers_.take_call_result(i);
  } else {
    result = registers_.result(i);
    if (instruction.op == Op::kRoundBFloat16 && is_bfloat16_[instruction.a]) {
      code_.move(type, result, operands[0]);  // as after a maximum
    } else {
      code_.compute(instruction, result, operands[0], operands[1], operands[2]);
    }
  }
  if (plan_.analysis.values[item.result].uniform) {
    code_.save_first(type_of(item.result), result, frame(frame_.home(item.result)));
  }
  registers_.finish(i);
}

void Program::emit_accumulate(const Loop& loop, const Shape& shape, const Item& item, int value,
                              int copy, Access access) {
  const auto found = std::find(loop.reductions.begin(), loop.reductions.end(), item.index);
  const auto place = static_cast<std::size_t>(found - loop.reductions.begin());
  const auto [op, type, a, b, c] = body_.instructions[item.index];
  if (shape.accumulators > 0) {
    return code_.accumulate(op, type, accumulator_register(loop, shape, place, copy), value,
                            access);
  }
  code_.mov(code_.eax, code_.ebx);
  code_.and_(code_.eax, static_cast<int>(kReductionLanes) - 1);
  const auto memory =
      frame(accumulator_memory(loop, place)) + code_.rax * static_cast<int>(size_of(type));
  code_.fill(type, code_.scratch(), memory);
  code_.accumulate(op, type, code_.scratch(), value, access);
  code_.spill(type, code_.scratch(), memory);
}

void Program::start_accumulators(const Loop& loop, const Shape& shape) {
  const int vectors = static_cast<int>(kReductionLanes) / code_.lanes();
  for (std::size_t place = 0; place < loop.reductions.size(); ++place) {
    const Instruction& reduction = body_.instructions[loop.reductions[place]];
    const int width = code_.lanes() * static_cast<int>(size_of(reduction.type));
    for (int copy = 0; copy < vectors; ++copy) {
      if (shape.accumulators > 0) {
        code_.start_accumulator(reduction.op, reduction.type,
                                accumulator_register(loop, shape, place, copy));
        continue;
      }
      if (copy == 0) code_.start_accumulator(reduction.op, reduction.type, 0);
      code_.spill(reduction.type, 0, frame(accumulator_memory(loop, place) + copy * width));
    }
  }
}

void Program::save_accumulators(const Loop& loop, const Shape& shape) {
  if (shape.accumulators == 0) return;
  for (std::size_t place = 0; place < loop.reductions.size(); ++place) {
    const Type type = body_.instructions[loop.reductions[place]].type;
    const int width = code_.lanes() * static_cast<int>(size_of(type));
    for (int copy = 0; copy < shape.copies; ++copy) {
      code_.spill(type, accumulator_register(loop, shape, place, copy),
                  frame(accumulator_memory(loop, place) + copy * width));
    }
  }
}

void Program::fold_accumulators(const Loop& loop) {
  for (std::size_t place = 0; place < loop.reductions.size(); ++place) {
    const Instruction& reduction = body_.instructions[loop.reductions[place]];
    const auto result = static_cast<ValueId>(body_.first_result() + loop.reductions[place]);
    code_.fold(reduction.op, reduction.type, frame(accumulator_memory(loop, place)),
               frame(frame_.home(result)));
  }
}

}  // namespace loom::fusion::jit
