// SPDX-License-Identifier: Apache-2.0
#pragma once
// The recursive-descent parser behind parse(). parse_module.cpp reads directives and variables,
// parse_body.cpp function bodies, parse_value.cpp constant expressions and initialisers.
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgp/ptx/lexer.h"
#include "cgp/ptx/module.h"

namespace cgp::ptx {

/// A constant: an integer with PTX's two types .s64 and .u64, or a floating-point number.
struct Constant {
  enum Kind : std::uint8_t { integer, f32, f64 } kind = integer;
  bool is_unsigned = false;
  std::uint64_t bits = 0;
};

/// What a name means at this point of the text.
struct Binding {
  enum Kind : std::uint8_t { none, reg, vector, sreg, symbol, constant } kind = none;
  std::uint32_t id = kNone;  ///< vector: of its first element; the others follow
  std::uint8_t width = 1;    ///< vector: elements
};

/// Hash table from names to bindings with scopes: leave() restores what enter() saw.
class Names {
 public:
  Names() : slots_(1024) {}
  Binding find(std::string_view name) const;
  void bind(std::string_view name, Binding b);  ///< name must outlive the table
  std::size_t mark() const { return undo_.size(); }
  void restore(std::size_t mark);

 private:
  struct Slot {
    std::string_view key;
    std::uint32_t hash = 0;
    Binding value;
  };
  std::size_t locate(std::string_view name, std::uint32_t hash) const;
  void grow();

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::pair<std::string_view, Binding>> undo_;
};

class Parser {
 public:
  explicit Parser(std::string_view text);
  Module run();

 private:
  static constexpr int kMaxScopes = 200, kMaxExpression = 100;
  // Of more than kManyRegisters those in use are kept.
  static constexpr std::size_t kManyRegisters = 1u << 16, kMaxRegisters = 1u << 20, kMaxVector = 512,
                               kMaxOperands = 64, kMaxDimensions = 16;
  static constexpr std::uint64_t kMaxBytes = 1ull << 40, kMaxInitialiser = 1ull << 28;

  struct Word {
    Op op = Op::kCount;
    Mods mods;
  };

  // tokens
  void advance();
  std::size_t offset() const { return offset_of(token_); }
  std::size_t offset_of(const Token& t) const { return std::size_t(t.text.data() - lexer_.text().data()); }
  [[noreturn]] void fail(std::string rule, std::string hint = {}) const { lexer_.fail(offset(), rule, hint); }
  [[noreturn]] void fail_at(const Token& t, std::string rule, std::string hint = {}) const {
    lexer_.fail(offset_of(t), rule, hint);
  }
  bool accept(char c);
  void expect(char c, std::string_view where);
  bool accept_directive(std::string_view text);
  std::string describe() const;
  std::string_view identifier(std::string_view what);
  std::uint64_t natural(std::string_view what, std::uint64_t max);

  // parse_value.cpp
  Constant constant() { return conditional(0); }
  Constant conditional(int depth);
  Constant binary(int depth, int precedence);
  Constant unary(int depth);
  Constant primary(int depth);
  Constant literal(const Token& t);
  void initialiser(Var& v);
  void initialiser_list(Var& v, std::size_t dimension, std::uint64_t& at, std::uint64_t end);
  void initialiser_value(Var& v, std::uint64_t at);
  void initialiser_symbol(Var& v, Relocation r);
  void store(Var& v, std::uint64_t at, const Constant& c);

  // parse_module.cpp
  void header();
  void file_directive();
  void section();
  void read_debug_strings();
  void alias();
  void linkage_and_more();
  void function(bool entry, Linkage linkage);
  void bind_parameters(const std::vector<Var>& list);
  void function_directives(Function& f);
  bool one_function_directive(Function& f);
  std::array<std::uint32_t, 3> triple();
  std::vector<Var> parameters(bool may_be_reg);
  Var parameter();
  void variables(std::vector<Var>& out, Space space, Linkage linkage);
  Var variable_head(Space space);
  void variable_name(Var& v);
  void array_suffix(Var& v);
  std::optional<Space> space_of(std::string_view directive) const;
  Mod type(std::string_view directive, std::string_view what);
  SymbolId intern(std::string_view name);
  std::string unescaped(std::string_view quoted) const;
  void pragma(std::vector<std::string>& out);

  // parse_body.cpp
  void body(Function& f);
  void statement();
  void body_directive();
  void registers();
  void declare_register(std::string_view name, Mod type);
  void declare_vector(std::string_view name, Mod type, int width);
  void local_variables(Space space);
  void loc_directive();
  void label_or_table(const Token& name);
  void table(const Token& name, bool calls);
  void prototype(const Token& name);
  void instruction();
  void written_out();
  RegId sum_of(RegId r);
  void opcode(Inst& i);
  Word split_word(const Token& t) const;
  [[noreturn]] void unknown_instruction(const Token& t) const;
  Mod modifier(std::string_view text, const Token& at, std::string_view op) const;
  Operand operand(const Inst& i, int depth);
  Operand word_operand(const Inst& i);
  Operand address(int depth);
  void address_tail(Operand& o, int depth);
  std::int64_t signed_offset();
  Operand elements(const Inst& i, char close, OperandKind kind, int depth);
  Operand constant_operand();
  RegId predicate();
  [[noreturn]] void unknown_name(const Token& t, std::string_view what) const;
  void enter_scope();
  void leave_scope();
  std::string unique(std::string_view name);

  Lexer lexer_;
  Token token_;
  Module module_;
  Names names_;
  std::unordered_map<std::string_view, SymbolId> symbols_;
  std::deque<std::string>
      arena_;  // names made here (register ranges, renamed shadows), with stable addresses
  std::unordered_map<std::string_view, std::string> debug_strings_;
  std::unordered_map<std::string_view, Word> words_;  // whole opcode words seen before

  // the function being read
  struct Scope {
    std::size_t names = 0, labels = 0, references = 0;
  };
  struct LabelName {
    std::string_view name;
    enum Kind : std::uint8_t { label, table, prototype } kind;
    std::uint32_t id;
  };
  struct Reference {
    Token at;
    enum Where : std::uint8_t { operand, table } where;
    std::uint32_t index, slot;  // instruction and operand, or table and entry
  };
  Function* function_ = nullptr;
  std::vector<Scope> scopes_;
  std::vector<LabelName> label_names_;  // visible and not yet left
  std::vector<Reference> references_;
  std::vector<Inst> sums_;  // what `%r + 1` as a value of the instruction being read stands for
  std::unordered_map<std::string_view, int> used_;  // names taken in this function, for renaming
  std::uint32_t loc_ = kNone;
  std::unordered_map<std::string, std::uint32_t> locs_;
  std::map<std::array<std::int64_t, 3>, std::uint32_t> last_locs_;  // file, line, column
};

}  // namespace cgp::ptx
