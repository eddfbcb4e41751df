// SPDX-License-Identifier: Apache-2.0
#pragma once
// Callers of code without frame pointers, by the tables that compilers write for exceptions: the section .eh_frame, call
// frame information of DWARF 5 (section 6.4) as the Linux Standard Base and the x86-64 ABI (section 3.7) lay it out.
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cgp::profile {

/// General registers of x86-64 by DWARF's numbers: 6 is rbp, 7 rsp; 16 is the instruction.
struct Registers {
  static constexpr std::size_t kFrame = 6, kStack = 7, kInstruction = 16, kCount = 17;
  std::array<std::uint64_t, kCount> value{};
  std::uint32_t known = 0;  ///< a bit for each
  bool has(std::size_t r) const { return r < kCount && (known >> r & 1); }
  void set(std::size_t r, std::uint64_t v) { value[r] = v, known |= 1u << r; }
};

/// What a thread's stack held, from its stack pointer on.
struct StackBytes {
  std::uint64_t begin = 0;
  std::string_view bytes;
  bool read(std::uint64_t address, std::uint64_t& into) const;
};

enum class Step : std::uint8_t {
  caller,  ///< the registers are the caller's now
  end,     ///< the outermost function
  cut,     ///< the stack goes on beyond what was recorded
  unknown  ///< no table has this instruction, or it is damaged
};

/// The unwind table of one file.
class UnwindTable {
 public:
  UnwindTable() = default;
  /// `eh_frame` must outlive it; `address` is where the file wants to be loaded. Damaged entries are left out.
  UnwindTable(std::string_view eh_frame, std::uint64_t address);

  /// One function outward. `pc` is the instruction, by the file's own addresses; inside the call, not behind it.
  Step step(std::uint64_t pc, Registers& registers, const StackBytes& stack);
  bool empty() const { return functions_.empty(); }

 private:
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::size_t cie = 0;
    std::string_view program;
  };
  struct Cie {
    std::string_view program;
    std::uint64_t code_align = 1, return_register = 16;
    std::int64_t data_align = 1;
    std::uint8_t encoding = 0;
    bool augmented = false;
  };
  /// Where a register's value of the caller is.
  struct Rule {
    enum class Kind : std::uint8_t {
      same,
      undefined,
      at_offset,
      is_offset,
      in_register,
      at_expression,
      is_expression
    } kind = Kind::same;
    std::int64_t offset = 0;  ///< of the frame's address; of in_register the number
    std::string_view expression;
  };
  struct Row {
    bool valid = false;
    std::uint64_t frame_register = 7;
    std::int64_t frame_offset = 8;
    std::string_view frame_expression;
    std::array<Rule, Registers::kCount> rules{};
  };
  class Reader;
  bool read_cie(std::string_view body, std::uint64_t address, Cie& out) const;
  Row row_of(std::uint64_t pc) const;
  static bool run(std::string_view program, const Cie& cie, std::uint64_t begin, std::uint64_t pc,
                  const Row& initial, Row& row);

  std::vector<Cie> cies_;
  std::vector<Function> functions_;  ///< by begin
  std::unordered_map<std::uint64_t, Row> rows_;
};

}  // namespace cgp::profile
