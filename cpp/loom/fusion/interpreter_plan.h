// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the interpreter does for a body: the calls of primitives in their order, and where their
// operands are. Everything has a slot, a number under which a run keeps the current address.
//
// Columns are worked on in tiles. A value of elements is in a tile buffer, which several values
// share one after the other, or, if a later phase needs it, in a buffer for the whole row. Inputs
// whose type in memory is that in registers are read where they are, others are converted into a
// tile in each phase that uses them. Outputs are stored at the end of a tile; one whose instruction
// can write to it directly has the slot of a tile buffer that is the output's memory, unless that
// memory is an input which is read after the instruction (`Direct`).
// Thread: immutable once made.

#include "loom/fusion/body.h"
#include "loom/fusion/primitives.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion {

using Slot = std::uint16_t;

struct Step {
  Primitive run = nullptr;
  Slot out = 0, a = 0, b = 0, c = 0;
};

/// A slot whose address goes on with the columns.
struct Moving {
  Slot slot = 0;
  std::uint8_t size = 0;  ///< of an element
};

struct Phase {
  std::vector<Step> row;     ///< before the tiles: uniform values, one element each
  std::vector<Step> tile;    ///< for each tile
  std::vector<Step> finish;  ///< after the tiles: reductions
  std::vector<Moving> moving;
};

/// An operand in memory that has a slot.
struct Operand {
  Slot slot = 0;
  std::uint8_t index = 0;  ///< in Arguments::inputs or outputs, or in Arguments::params
};

/// A part of the scratch memory that has a slot.
struct Buffer {
  Slot slot = 0;
  std::size_t offset = 0;  ///< from the scratch memory's begin
  std::uint8_t size = 0;   ///< of an element of a row's buffer; its offset is for one column
};

struct Direct {
  Primitive store = nullptr;  ///< for the tile buffer
  Slot slot = 0;              ///< what the instruction writes to
  Slot memory = 0;            ///< the output's
  std::uint8_t output = 0;
  std::size_t offset = 0;                  ///< of the tile buffer to use otherwise
  std::vector<std::uint8_t> later_inputs;  ///< read after the output was written
};

struct Plan {
  std::vector<Operand> params, inputs, outputs;
  std::vector<Buffer> buffers;      ///< tiles and uniform values
  std::vector<Buffer> row_buffers;  ///< in order, each columns * size bytes, rounded up to 64
  std::vector<Direct> directs;      ///< all in the last phase
  std::vector<Step> once;           ///< what depends on parameters alone
  std::vector<Phase> phases;
  std::vector<Step> row_end;    ///< stores uniform outputs
  std::size_t slots = 1;        ///< 0 is nobody's
  std::size_t fixed_bytes = 0;  ///< of scratch memory, before the buffers for rows
  std::int64_t tile = 0;        ///< columns
};

[[nodiscard]] Plan make_plan(const Body& body, const Primitives& primitives);

}  // namespace loom::fusion
