// SPDX-License-Identifier: Apache-2.0
#pragma once
// The grammar of instructions. Each row of opcodes.def carries its legal forms, one a line:
//
//   {.rn .rz}{.ftz}.f32   d, a, b   ; 8.6 100   ; .ftz: 8.8 90a 100f
//   modifiers             operands  ; .version and targets ; further needs of single modifiers
//
// Modifiers, in the order that is printed: `.x` must stand there, `(.x .y)` is one of them, `{.x .y}` one or
// none; an alternative may be a sequence (.xorsign.abs); `@name` is a macro of forms.cpp.
//
// Operands: a letter for the role, `:type` (the first type modifier when left out; t1 is the second, wide is
// twice the first), then details.
//   d          destination register
//   p          destination predicate
//   d|p        destination register with a second, optional predicate
//   a b c e s  register or constant
//   r          register only
//   m          as a, or a special register or the address of a variable (mov, cvta)
//   q          predicate
//   P          predicate, may be !p
//   Q          predicate, or 0 or 1
//   #          integer constant; #(0..15) #(4/8/16) #(24..256*8) restrict it, as a:u32(0..15) does a register
//              or constant
//   []       address in the space that the modifiers name; [shared] [global] [generic] [tmem] name it here;
//            [tensor] is [map, {coordinates}], [gather] has five
//   x{4}     vector of 4; {v} by .v2/.v4/.v8 (scalar without); {x} {2x} by .x4; {n/2} by the n of
//            .m64n128k16; {dim-2} by .4d
//   x+       the register may be wider than the type     x_  may be the sink _      ?x  may be left out
//   <.mod>x  stands there exactly when the modifier does
//   pack, unpack  {..} of a mov; mask  disable-output-lane of tcgen05.mma; label, table, call, any  as named
// `- ` is a form without modifiers and operands. A line `! ...` holds for all forms of the opcode.
//
// Versions and targets are facts checked against ptxas 13.0; a target is "90" (and newer), "90a" or "100f"
// (target.h).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/ptx/module.h"
#include "cgp/ptx/target.h"

namespace cgp::ptx {

struct Requirement {
  Version version{1, 0};
  std::vector<TargetCondition> targets;  ///< any of them; empty = all
};

/// One place in the modifier list.
struct ModSlot {
  bool optional = false;
  std::vector<std::vector<Mod>> alternatives;
};

struct OperandPattern {
  enum class Kind : std::uint8_t {
    dest,
    source,
    reg,
    mov,
    pred_dest,
    pred,
    pred_not,
    pred_or_flag,
    imm,
    address,
    pack,
    unpack,
    mask,
    label,
    table,
    call,
    any,
    sink
  };
  enum class Type : std::uint8_t { t0, t1, t2, t3, wide, fixed, size, address };
  enum class Count : std::uint8_t { scalar, fixed, vec, x, n, dim };
  enum class Where : std::uint8_t { mods, generic, global, shared, tmem, tensor, gather };
  struct Range {
    std::int64_t first, last, step;
  };

  Kind kind = Kind::any;
  Type type_from = Type::t0;
  Mod type = kNoMod;  ///< for Type::fixed
  Count count_by = Count::scalar;
  int multiply = 1, divide = 1, subtract = 0;  ///< elements = n * multiply / divide - subtract
  Where where = Where::mods;
  bool optional = false, wider = false, sink = false, dual = false;
  Mod only_with = kNoMod;
  std::vector<Range> ranges;  ///< legal constants; empty = any
};

struct Form {
  Op op = Op::kCount;
  std::vector<ModSlot> slots;
  std::vector<OperandPattern> operands;
  Requirement need;
  std::vector<std::pair<Mod, Requirement>> mod_needs;
  std::string modifiers_text, operands_text;  ///< as in the table, macros expanded
};

/// The forms of an opcode; compiled from opcodes.def on first use.
const std::vector<Form>& forms(Op op);

/// Do the modifiers fit the form in its order?
bool match_modifiers(const Form& f, const Mods& mods);
/// Do they fit in any order? Then `ordered` is the order of the form.
bool match_unordered(const Form& f, const Mods& mods, Mods& ordered);
/// The modifiers in the order of the first form that they fit; unchanged when they fit none.
Mods canonical(Op op, const Mods& mods);

/// The type an operand must have in an instruction with these modifiers; kNoMod when it has none.
Mod operand_type(const OperandPattern& p, const Mods& mods);
/// Elements of a vector operand, 0 for a scalar, -1 when the modifiers do not say.
int operand_count(const OperandPattern& p, const Mods& mods);

}  // namespace cgp::ptx
