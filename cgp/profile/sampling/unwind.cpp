// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/sampling/unwind.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace cgp::profile {

/// Reads numbers; beyond the end it gives 0 and is no longer good.
class UnwindTable::Reader {
 public:
  /// `address`: where the file wants the first byte, for pointers relative to themselves.
  Reader(std::string_view bytes, std::uint64_t address = 0) : bytes_(bytes), address_(address) {}
  bool good() const { return good_; }
  bool done() const { return !good_ || at_ >= bytes_.size(); }
  std::size_t at() const { return at_; }
  std::string_view rest() const { return good_ ? bytes_.substr(at_) : std::string_view{}; }

  template <class T>
  T take() {
    T v{};
    if (!good_ || bytes_.size() - at_ < sizeof v) return good_ = false, v;
    std::memcpy(&v, bytes_.data() + at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  std::string_view take(std::uint64_t size) {
    if (!good_ || bytes_.size() - at_ < size) return good_ = false, std::string_view{};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  std::uint64_t uleb() {
    std::uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto b = take<std::uint8_t>();
      v |= std::uint64_t(b & 0x7f) << shift;
      if (!(b & 0x80)) return v;
    }
    return good_ = false, 0;
  }
  std::int64_t sleb() {
    std::uint64_t v = 0;
    for (unsigned shift = 0; shift < 64;) {
      const auto b = take<std::uint8_t>();
      v |= std::uint64_t(b & 0x7f) << shift;
      shift += 7;
      if (b & 0x80) continue;
      if ((b & 0x40) && shift < 64) v |= ~std::uint64_t(0) << shift;
      return std::int64_t(v);
    }
    return good_ = false, 0;
  }
  std::string_view text() {
    const auto end = rest().find('\0');
    if (end == std::string_view::npos) return good_ = false, std::string_view{};
    const auto t = take(end);
    take(1);
    return t;
  }
  /// DW_EH_PE: the low four bits are the form, the next three what it is relative to. `relative` false: a size.
  std::uint64_t pointer(std::uint8_t encoding, bool relative = true) {
    const std::uint64_t here = address_ + at_;
    std::uint64_t v = 0;
    switch (encoding & 0x0f) {
      case 0x0:
      case 0x4:
      case 0xc:
        v = take<std::uint64_t>();
        break;
      case 0x1:
        v = uleb();
        break;
      case 0x2:
        v = take<std::uint16_t>();
        break;
      case 0x3:
        v = take<std::uint32_t>();
        break;
      case 0x9:
        v = std::uint64_t(sleb());
        break;
      case 0xa:
        v = std::uint64_t(std::int64_t(take<std::int16_t>()));
        break;
      case 0xb:
        v = std::uint64_t(std::int64_t(take<std::int32_t>()));
        break;
      default:
        good_ = false;
    }
    if (!relative) return v;
    const auto to = encoding & 0x70;
    if (to != 0 && to != 0x10)
      good_ = false;  // relative to the text, the data or the function: not on x86-64
    return to == 0x10 ? v + here : v;
  }

 private:
  std::string_view bytes_;
  std::uint64_t address_;
  std::size_t at_ = 0;
  bool good_ = true;
};

bool StackBytes::read(std::uint64_t address, std::uint64_t& into) const {
  if (address < begin || address - begin > bytes.size() || bytes.size() - (address - begin) < sizeof into)
    return false;
  std::memcpy(&into, bytes.data() + (address - begin), sizeof into);
  return true;
}

bool UnwindTable::read_cie(std::string_view body, std::uint64_t address, Cie& c) const {
  Reader r(body, address);
  const auto version = r.take<std::uint8_t>();
  const auto augmentation = r.text();
  if (!r.good() || (version != 1 && version != 3)) return false;
  c.code_align = r.uleb(), c.data_align = r.sleb();
  c.return_register = version == 1 ? r.take<std::uint8_t>() : r.uleb();
  if (!augmentation.empty()) {
    if (augmentation[0] != 'z') return false;
    c.augmented = true;
    const auto size = r.uleb();
    const std::size_t begin = r.at();
    for (char mark : augmentation.substr(1)) {
      if (mark == 'R')
        c.encoding = r.take<std::uint8_t>();
      else if (mark == 'S')
        continue;  // a signal's frame
      else if (mark == 'L')
        r.take<std::uint8_t>();
      else if (mark == 'P')
        r.pointer(r.take<std::uint8_t>(), false);
      else
        break;
    }
    if (!r.good() || r.at() - begin > size) return false;
    r.take(size - (r.at() - begin));
  }
  c.program = r.rest();
  return r.good() && c.return_register == Registers::kInstruction;
}

UnwindTable::UnwindTable(std::string_view section, std::uint64_t address) {
  std::map<std::size_t, std::size_t> cie_at;  // offset: index
  for (Reader r(section); !r.done();) {
    const std::size_t begin = r.at();
    std::uint64_t length = r.take<std::uint32_t>();
    if (length == 0) continue;  // the end of one object's part
    if (length == 0xffffffff) length = r.take<std::uint64_t>();
    const std::size_t id_at = r.at();
    const auto body = r.take(length);
    if (!r.good() || body.size() < 4) break;
    Reader entry(body, address + id_at);
    const auto id = entry.take<std::uint32_t>();
    if (id == 0) {
      Cie c;
      if (read_cie(entry.rest(), address + id_at + 4, c)) {
        cie_at[begin] = cies_.size();
        cies_.push_back(c);
      }
      continue;
    }
    const auto cie = cie_at.find(id_at - id);
    if (cie == cie_at.end()) continue;
    const Cie& c = cies_[cie->second];
    Function f;
    f.begin = entry.pointer(c.encoding);
    f.end = f.begin + entry.pointer(c.encoding, false);
    if (c.augmented) entry.take(entry.uleb());
    f.cie = cie->second, f.program = entry.rest();
    if (entry.good() && f.begin && f.end > f.begin) functions_.push_back(f);
  }
  std::sort(functions_.begin(), functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

bool UnwindTable::run(std::string_view program, const Cie& cie, std::uint64_t begin, std::uint64_t pc,
                      const Row& initial, Row& row) {
  using Kind = Rule::Kind;
  std::vector<Row> kept;
  std::uint64_t at = begin;
  Rule none;
  const auto rule = [&](std::uint64_t r) -> Rule& { return r < row.rules.size() ? row.rules[r] : none; };
  for (Reader r(program); !r.done() && at <= pc;) {
    const auto op = r.take<std::uint8_t>();
    const std::uint8_t low = op & 0x3f;
    const auto scaled = [&](std::uint64_t v) { return std::int64_t(v) * cie.data_align; };
    switch (op & 0xc0) {
      case 0x40:
        at += low * cie.code_align;
        continue;
      case 0x80:
        rule(low) = {Kind::at_offset, scaled(r.uleb()), {}};
        continue;
      case 0xc0:
        rule(low) = low < initial.rules.size() ? initial.rules[low] : Rule{};
        continue;
      default:
        break;
    }
    switch (op) {
      case 0x00:  // nop
        break;
      case 0x01:  // set_loc
        at = r.pointer(cie.encoding);
        break;
      case 0x02:
        at += r.take<std::uint8_t>() * cie.code_align;
        break;
      case 0x03:
        at += r.take<std::uint16_t>() * cie.code_align;
        break;
      case 0x04:
        at += r.take<std::uint32_t>() * cie.code_align;
        break;
      case 0x05: {  // offset_extended
        const auto which = r.uleb();
        rule(which) = {Kind::at_offset, scaled(r.uleb()), {}};
        break;
      }
      case 0x06: {  // restore_extended
        const auto which = r.uleb();
        rule(which) = which < initial.rules.size() ? initial.rules[which] : Rule{};
        break;
      }
      case 0x07:
        rule(r.uleb()) = {Kind::undefined, 0, {}};
        break;
      case 0x08:
        rule(r.uleb()) = {};
        break;
      case 0x09: {
        const auto which = r.uleb();
        rule(which) = {Kind::in_register, std::int64_t(r.uleb()), {}};
        break;
      }
      case 0x0a:
        kept.push_back(row);
        break;
      case 0x0b:
        if (kept.empty()) return false;
        row = kept.back(), kept.pop_back();
        break;
      case 0x0c:  // def_cfa
        row.frame_register = r.uleb(), row.frame_offset = std::int64_t(r.uleb()), row.frame_expression = {};
        break;
      case 0x0d:
        row.frame_register = r.uleb();
        break;
      case 0x0e:
        row.frame_offset = std::int64_t(r.uleb());
        break;
      case 0x0f:
        row.frame_expression = r.take(r.uleb());
        break;
      case 0x10:
      case 0x16: {
        const auto which = r.uleb();
        rule(which) = {op == 0x10 ? Kind::at_expression : Kind::is_expression, 0, r.take(r.uleb())};
        break;
      }
      case 0x11: {
        const auto which = r.uleb();
        rule(which) = {Kind::at_offset, r.sleb() * cie.data_align, {}};
        break;
      }
      case 0x12:
        row.frame_register = r.uleb(), row.frame_offset = r.sleb() * cie.data_align,
        row.frame_expression = {};
        break;
      case 0x13:
        row.frame_offset = r.sleb() * cie.data_align;
        break;
      case 0x14:
      case 0x15: {
        const auto which = r.uleb();
        rule(which) = {Kind::is_offset, op == 0x14 ? scaled(r.uleb()) : r.sleb() * cie.data_align, {}};
        break;
      }
      case 0x2e:  // GNU_args_size
        r.uleb();
        break;
      default:
        return false;
    }
    if (!r.good()) return false;
  }
  return true;
}

UnwindTable::Row UnwindTable::row_of(std::uint64_t pc) const {
  const auto next = std::upper_bound(functions_.begin(), functions_.end(), pc,
                                     [](std::uint64_t a, const Function& f) { return a < f.begin; });
  if (next == functions_.begin()) return {};
  const Function& f = *std::prev(next);
  if (pc >= f.end) return {};
  const Cie& cie = cies_[f.cie];
  Row initial, row;
  if (!run(cie.program, cie, 0, ~std::uint64_t(0), {}, initial)) return {};
  row = initial;
  row.valid = run(f.program, cie, f.begin, pc, initial, row);
  return row;
}

namespace {

/// What expressions of unwind tables use: those of procedure linkage tables, signal frames and realigned stacks. `pushed`
/// lies on the stack at first.
template <class Reader>
std::optional<std::uint64_t> evaluated(std::string_view expression, const Registers& registers,
                                       const StackBytes& stack, std::optional<std::uint64_t> pushed) {
  std::vector<std::uint64_t> s;
  if (pushed) s.push_back(*pushed);
  for (Reader r(expression); !r.done();) {
    const auto op = r.template take<std::uint8_t>();
    if (op >= 0x30 && op <= 0x4f) {  // lit0 to lit31
      s.push_back(op - 0x30);
    } else if (op >= 0x70 && op <= 0x8f) {  // breg0 to breg31
      const std::size_t which = op - 0x70;
      if (!registers.has(which)) return std::nullopt;
      s.push_back(registers.value[which] + std::uint64_t(r.sleb()));
    } else if (op == 0x08) {
      s.push_back(r.template take<std::uint8_t>());
    } else if (op == 0x09) {
      s.push_back(std::uint64_t(std::int64_t(r.template take<std::int8_t>())));
    } else if (op == 0x10) {
      s.push_back(r.uleb());
    } else if (op == 0x11) {
      s.push_back(std::uint64_t(r.sleb()));
    } else if (op == 0x06 || op == 0x23) {  // deref, plus_uconst
      if (s.empty()) return std::nullopt;
      if (op == 0x23)
        s.back() += r.uleb();
      else if (!stack.read(s.back(), s.back()))
        return std::nullopt;
    } else {
      if (s.size() < 2) return std::nullopt;
      const std::uint64_t b = s.back();
      s.pop_back();
      std::uint64_t& a = s.back();
      switch (op) {
        case 0x1a:
          a &= b;
          break;
        case 0x1c:
          a -= b;
          break;
        case 0x22:
          a += b;
          break;
        case 0x24:
          a = b < 64 ? a << b : 0;
          break;
        case 0x2a:
          a = std::int64_t(a) >= std::int64_t(b);
          break;
        default:
          return std::nullopt;
      }
    }
    if (!r.good()) return std::nullopt;
  }
  return s.empty() ? std::nullopt : std::optional(s.back());
}

}  // namespace

Step UnwindTable::step(std::uint64_t pc, Registers& registers, const StackBytes& stack) {
  using Kind = Rule::Kind;
  const auto [known, fresh] = rows_.try_emplace(pc);
  if (fresh) known->second = row_of(pc);
  const Row& row = known->second;
  if (!row.valid) return Step::unknown;
  std::uint64_t frame = 0;
  if (!row.frame_expression.empty()) {
    const auto v = evaluated<Reader>(row.frame_expression, registers, stack, {});
    if (!v) return Step::unknown;
    frame = *v;
  } else {
    if (!registers.has(row.frame_register)) return Step::unknown;
    frame = registers.value[row.frame_register] + std::uint64_t(row.frame_offset);
  }
  if (row.rules[Registers::kInstruction].kind == Kind::undefined) return Step::end;
  Registers caller;
  caller.set(Registers::kStack, frame);
  for (std::size_t i = 0; i < Registers::kCount; ++i) {
    const Rule& rule = row.rules[i];
    std::uint64_t v = 0;
    std::optional<std::uint64_t> place;
    switch (rule.kind) {
      case Kind::same:
        if (i != Registers::kStack && i != Registers::kInstruction && registers.has(i))
          caller.set(i, registers.value[i]);
        continue;
      case Kind::undefined:
        continue;
      case Kind::is_offset:
        caller.set(i, frame + std::uint64_t(rule.offset));
        continue;
      case Kind::in_register:
        if (registers.has(std::size_t(rule.offset))) caller.set(i, registers.value[std::size_t(rule.offset)]);
        continue;
      case Kind::is_expression:
        if (const auto is = evaluated<Reader>(rule.expression, registers, stack, frame)) caller.set(i, *is);
        continue;
      case Kind::at_expression:
        place = evaluated<Reader>(rule.expression, registers, stack, frame);
        break;
      case Kind::at_offset:
        place = frame + std::uint64_t(rule.offset);
        break;
    }
    if (place && stack.read(*place, v))
      caller.set(i, v);
    else if (i == Registers::kInstruction)
      return place && *place >= stack.begin + stack.bytes.size() ? Step::cut : Step::unknown;
  }
  if (!caller.has(Registers::kInstruction)) return Step::unknown;
  if (caller.value[Registers::kInstruction] == 0) return Step::end;
  if (caller.value[Registers::kStack] <= registers.value[Registers::kStack])
    return Step::unknown;  // it would never end
  registers = caller;
  return Step::caller;
}

}  // namespace cgp::profile
