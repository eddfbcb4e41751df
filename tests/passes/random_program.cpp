// SPDX-License-Identifier: Apache-2.0
#include "random_program.h"

#include <array>
#include <string_view>
#include <vector>

#include "cgp/base/random.h"
#include "cgp/base/text.h"

namespace cgp::passes_test {
namespace {

using text::cat;

// Register classes and how their registers are named.
enum Class { kPred, kHalf, kInt, kLong, kFloat, kDouble, kClasses };
constexpr std::array<std::string_view, kClasses> kPrefix = {"%p", "%h", "%r", "%rd", "%f", "%fd"};
constexpr std::array<std::string_view, kClasses> kType = {"pred", "b16", "b32", "b64", "f32", "f64"};
constexpr int kPool = 4;  // variables of each class: assigned again and again

class Generator {
 public:
  Generator(std::uint64_t seed, const ProgramOptions& o) : random_(seed ^ 0x6a09e667f3bcc908ull), o_(o) {}

  std::string run() {
    prologue();
    scopes_.emplace_back();
    for (int i = 0; i < o_.statements; ++i) statement(o_.depth, true);
    epilogue();
    return header() + body_ + "}\n";
  }

 private:
  // ------------------------------------------------------------ choices
  std::uint64_t below(std::uint64_t n) { return random_.next() % n; }
  bool chance(int percent) { return below(100) < std::uint64_t(percent); }
  template <std::size_t N>
  std::string_view pick(const std::array<std::string_view, N>& words) {
    return words[below(N)];
  }
  void line(const std::string& s) { body_ += "\t" + s + ";\n"; }
  std::string label() { return cat("$L", labels_++); }

  std::string fresh(Class c) { return cat(kPrefix[c], next_[c]++); }
  /// A register whose value is defined here.
  std::string read(Class c) {
    std::vector<const std::string*> all;
    for (const auto& scope : scopes_)
      for (const auto& name : scope[c]) all.push_back(&name);
    if (!all.empty() && chance(60))
      return *all[all.size() - 1 - below(std::min<std::size_t>(all.size(), 12))];
    return cat(kPrefix[c], below(kPool));
  }
  /// A variable, or a new register that is visible to the end of the innermost scope. Guarded instructions
  /// write variables only.
  std::string write(Class c, bool guarded) {
    if (guarded || chance(45)) return cat(kPrefix[c], below(kPool));
    pending_ = fresh(c);
    pending_class_ = c;
    return pending_;
  }
  void emit(const std::string& guard, const std::string& s) {
    line(guard + s);
    if (!pending_.empty()) scopes_.back()[std::size_t(pending_class_)].push_back(pending_);
    pending_.clear();
  }
  std::string guard() {
    if (!chance(15)) return {};
    return cat(chance(50) ? "@" : "@!", read(kPred), " ");
  }
  std::string integer(int bits) {
    static constexpr std::int64_t interesting[] = {0,  1,  -1, 2,  3,   4,   7,   8,    16,    31,   32,
                                                   33, 63, 64, 65, 100, 255, 256, 4096, 65536, 1023, -8};
    if (chance(80)) {
      std::int64_t v = interesting[below(std::size(interesting))];
      if (bits == 16) v = std::int16_t(v);
      return cat(v);
    }
    const std::uint64_t v = random_.next();
    return bits == 16 ? cat(std::int16_t(v)) : bits == 32 ? cat(std::int32_t(v)) : cat(std::int64_t(v));
  }
  std::string operand(Class c) {
    if (!chance(30)) return read(c);
    switch (c) {
      case kHalf:
        return integer(16);
      case kInt:
        return integer(32);
      case kLong:
        return integer(64);
      case kFloat: {
        static constexpr std::array<std::string_view, 10> values = {
            "0f00000000", "0f80000000", "0f3F800000", "0fBF800000", "0f40490FDB",
            "0f7F800000", "0f00000001", "0f7FC00000", "0f4B000001", "0f33800000"};
        return std::string(pick(values));
      }
      case kDouble: {
        static constexpr std::array<std::string_view, 5> values = {"0d0000000000000000", "0d3FF0000000000000",
                                                                   "0d400921FB54442D18", "0dFFF0000000000000",
                                                                   "0d0000000000000001"};
        return std::string(pick(values));
      }
      default:
        return read(c);
    }
  }

  // ------------------------------------------------------------ statements
  void statement(int depth, bool uniform) {
    const std::uint64_t kind = below(100);
    if (kind < 34) return arithmetic();
    if (kind < 44) return logic();
    if (kind < 52) return floating();
    if (kind < 56) return halves();
    if (kind < 62) return comparison();
    if (kind < 67) return conversion();
    if (kind < 71) return packing();
    if (kind < 73) return chance(50) ? exact_product() : product_and_sum();
    if (kind < 85) return memory();
    if (kind < 88 && uniform) return collective();
    if (depth == 0) return arithmetic();
    if (kind < 94) return branch(depth);
    return loop(depth, uniform);
  }
  void block(int depth, bool uniform, int length) {
    scopes_.emplace_back();
    for (int i = 0; i < length; ++i) statement(depth, uniform);
    scopes_.pop_back();
  }

  void arithmetic() {
    static constexpr std::array<std::string_view, 2> signs = {"u", "s"};
    const Class c = chance(70) ? kInt : chance(70) ? kLong : kHalf;
    const std::string t = cat(pick(signs), c == kInt ? "32" : c == kLong ? "64" : "16");
    const std::string g = guard();
    const std::string a = read(c), b = operand(c);
    switch (below(13)) {
      case 0: {  // a sum of a sum, of constants
        const std::string first = fresh(c);
        line(cat(chance(50) ? "add." : "sub.", t, " ", first, ", ", a, ", ", integer(c == kHalf ? 16 : 32)));
        scopes_.back()[std::size_t(c)].push_back(first);
        return emit(g, cat(chance(50) ? "add." : "sub.", t, " ", write(c, !g.empty()), ", ", first, ", ",
                           integer(c == kHalf ? 16 : 32)));
      }
      case 1:
        return emit(g, cat("add.", t, " ", write(c, !g.empty()), ", ", a, ", ", b));
      case 2:
        return emit(g, cat("sub.", t, " ", write(c, !g.empty()), ", ", operand(c), ", ", a));
      case 3:
        return emit(g, cat("mul.lo.", t, " ", write(c, !g.empty()), ", ", a, ", ", b));
      case 4:
        return emit(g, cat("mul.hi.", t, " ", write(c, !g.empty()), ", ", a, ", ", b));
      case 5:
        return emit(g, cat("mad.lo.", t, " ", write(c, !g.empty()), ", ", a, ", ", b, ", ", operand(c)));
      case 6: {
        const std::string wide = cat("mul.wide.", pick(signs), "32 ");
        const std::string x = read(kInt), y = operand(kInt);
        return emit(g, cat(wide, write(kLong, !g.empty()), ", ", x, ", ", y));
      }
      case 7: {
        const std::string wide = cat("mad.wide.", pick(signs), "32 ");
        const std::string x = read(kInt), y = operand(kInt), z = read(kLong);
        return emit(g, cat(wide, write(kLong, !g.empty()), ", ", x, ", ", y, ", ", z));
      }
      case 8:  // what strength reduction is about
        return emit(g, cat(chance(50) ? "div." : "rem.", t, " ", write(c, !g.empty()), ", ", a, ", ",
                           1ull << below(c == kHalf ? 14 : 30)));
      case 9:
        return emit(g, cat(chance(50) ? "min." : "max.", t, " ", write(c, !g.empty()), ", ", a, ", ", b));
      case 10:
        if (t[0] == 'u')
          return emit(g, cat("mov.b", t.substr(1), " ", write(c, !g.empty()), ", ", operand(c)));
        return emit(g, cat(chance(50) ? "neg." : "abs.", t, " ", write(c, !g.empty()), ", ", a));
      case 11: {
        const std::string x = read(kInt);
        static constexpr std::array<std::string_view, 3> ops = {"popc.b32 ", "clz.b32 ", "brev.b32 "};
        const std::string_view op = pick(ops);
        return emit(g, cat(op, write(kInt, !g.empty()), ", ", x));
      }
      default:
        return emit(g, cat("mov.b", t.substr(1), " ", write(c, !g.empty()), ", ", chance(60) ? b : a));
    }
  }

  void logic() {
    const std::string g = guard();
    const Class c = chance(70) ? kInt : kLong;
    const std::string b = c == kInt ? "b32" : "b64";
    const std::string x = read(c), y = operand(c);
    switch (below(8)) {
      case 0:
      case 1: {
        static constexpr std::array<std::string_view, 3> ops = {"and.", "or.", "xor."};
        return emit(g, cat(pick(ops), b, " ", write(c, !g.empty()), ", ", x, ", ", y));
      }
      case 2:
        return emit(g, cat("not.", b, " ", write(c, !g.empty()), ", ", x));
      case 3:
        return emit(g, cat("shl.", b, " ", write(c, !g.empty()), ", ", x, ", ", operand(kInt)));
      case 4:
        return emit(g, cat(chance(50) ? "shr.s" : "shr.u", b.substr(1), " ", write(c, !g.empty()), ", ", x,
                           ", ", operand(kInt)));
      case 5: {
        const std::string p = read(kInt), q = chance(50) ? cat(below(40)) : read(kInt), r = read(kInt);
        return emit(
            g, cat(chance(50) ? "bfe.u32 " : "bfe.s32 ", write(kInt, !g.empty()), ", ", p, ", ", q, ", ", r));
      }
      case 6: {
        const std::string p = read(kInt), q = operand(kInt), r = read(kInt);
        return emit(g,
                    cat("lop3.b32 ", write(kInt, !g.empty()), ", ", p, ", ", q, ", ", r, ", ", below(256)));
      }
      default: {
        const std::string p = read(kInt), q = read(kInt), r = operand(kInt);
        static constexpr std::array<std::string_view, 5> ops = {
            "shf.l.wrap.b32 ", "shf.r.clamp.b32 ", "prmt.b32 ", "shf.l.clamp.b32 ", "shf.r.wrap.b32 "};
        return emit(g, cat(pick(ops), write(kInt, !g.empty()), ", ", p, ", ", q, ", ", r));
      }
    }
  }

  // Sums and products say .rn, so that nothing may fuse them.
  void floating() {
    const std::string g = guard();
    const Class c = chance(80) ? kFloat : kDouble;
    const std::string t = c == kFloat ? (chance(25) ? "ftz.f32 " : "f32 ") : "f64 ";
    const std::string plain = c == kFloat ? "f32 " : "f64 ";
    const std::string x = read(c), y = operand(c);
    switch (below(6)) {
      case 0: {
        static constexpr std::array<std::string_view, 4> ops = {"add.rn.", "sub.rn.", "mul.rn.", "add.rz."};
        return emit(g, cat(pick(ops), t, write(c, !g.empty()), ", ", x, ", ", y));
      }
      case 1:
        return emit(g, cat("fma.rn.", t, write(c, !g.empty()), ", ", x, ", ", y, ", ", operand(c)));
      case 2:
        return emit(g, cat(chance(50) ? "min." : "max.", t, write(c, !g.empty()), ", ", x, ", ", y));
      case 3:
        return emit(g, cat(chance(50) ? "neg." : "abs.", t, write(c, !g.empty()), ", ", x));
      case 4:
        return emit(g, cat("mov.", plain, write(c, !g.empty()), ", ", y));
      default:
        return emit(g, cat("div.rn.", t, write(c, !g.empty()), ", ", x, ", ", y));
    }
  }

  void halves() {
    const std::string g = guard();
    const std::string a = read(kHalf), b = read(kHalf), x = read(kInt), y = read(kInt);
    switch (below(4)) {
      case 0:
        return emit(g, cat("fma.rn.f16 ", write(kHalf, !g.empty()), ", ", a, ", ", b, ", ", read(kHalf)));
      case 1:
        return emit(g, cat("add.rn.f16x2 ", write(kInt, !g.empty()), ", ", x, ", ", y));
      case 2:
        return emit(g, cat("mul.rn.bf16x2 ", write(kInt, !g.empty()), ", ", x, ", ", y));
      default:
        return emit(g, cat("sub.rn.f16 ", write(kHalf, !g.empty()), ", ", a, ", ", b));
    }
  }

  void comparison() {
    const std::string g = guard();
    static constexpr std::array<std::string_view, 6> icmp = {"eq", "ne", "lt", "le", "gt", "ge"};
    static constexpr std::array<std::string_view, 4> fcmp = {"lt", "geu", "neu", "nan"};
    const std::string x = read(kInt), y = operand(kInt);
    switch (below(7)) {
      case 0:
      case 1:
        return emit(g, cat("setp.", pick(icmp), chance(50) ? ".s32 " : ".u32 ", write(kPred, !g.empty()),
                           ", ", x, ", ", y));
      case 2:
        return emit(g, cat("setp.", pick(icmp), ".and.s32 ", write(kPred, !g.empty()), ", ", x, ", ", y, ", ",
                           chance(50) ? "!" : "", read(kPred)));
      case 3: {
        const std::string a = read(kFloat), b = operand(kFloat);
        return emit(g, cat("setp.", pick(fcmp), ".f32 ", write(kPred, !g.empty()), ", ", a, ", ", b));
      }
      case 4: {
        static constexpr std::array<std::string_view, 3> ops = {"and.pred ", "or.pred ", "xor.pred "};
        const std::string a = read(kPred), b = read(kPred);
        return emit(g, cat(pick(ops), write(kPred, !g.empty()), ", ", a, ", ", b));
      }
      case 5: {
        const std::string p = read(kPred);
        return emit(g, cat("selp.b32 ", write(kInt, !g.empty()), ", ", x, ", ", y, ", ", p));
      }
      default: {
        const std::string p = read(kPred), a = read(kLong), b = operand(kLong);
        return emit(g, cat("selp.b64 ", write(kLong, !g.empty()), ", ", a, ", ", b, ", ", p));
      }
    }
  }

  void conversion() {
    const std::string g = guard();
    const std::string x = read(kInt), l = read(kLong), f = read(kFloat), h = read(kHalf), d = read(kDouble);
    switch (below(10)) {
      case 0:
        return emit(g, cat("cvt.u64.u32 ", write(kLong, !g.empty()), ", ", x));
      case 1:
        return emit(g, cat("cvt.s64.s32 ", write(kLong, !g.empty()), ", ", x));
      case 2:
        return emit(g, cat("cvt.u32.u64 ", write(kInt, !g.empty()), ", ", l));
      case 3:
        return emit(g, cat("cvt.rn.f32.s32 ", write(kFloat, !g.empty()), ", ", operand(kInt)));
      case 4:
        return emit(g, cat("cvt.rzi.s32.f32 ", write(kInt, !g.empty()), ", ", f));
      case 5:
        return emit(g, cat("cvt.f32.f16 ", write(kFloat, !g.empty()), ", ", h));
      case 6:
        return emit(g, cat("cvt.rn.f16.f32 ", write(kHalf, !g.empty()), ", ", f));
      case 7:
        return emit(g, cat("cvt.s32.s8 ", write(kInt, !g.empty()), ", ", x));
      case 8:
        return emit(g, cat("cvt.f64.f32 ", write(kDouble, !g.empty()), ", ", f));
      default:
        return emit(g, cat("cvt.rn.f32.f64 ", write(kFloat, !g.empty()), ", ", d));
    }
  }

  void packing() {
    if (chance(50)) {
      const std::string a = read(kInt), b = read(kInt);
      return emit("", cat("mov.b64 ", write(kLong, false), ", {", a, ", ", b, "}"));
    }
    const std::string l = read(kLong), a = fresh(kInt), b = fresh(kInt);
    line(cat("mov.b64 {", a, ", ", b, "}, ", l));
    scopes_.back()[kInt].push_back(a);
    scopes_.back()[kInt].push_back(b);
  }

  // Small whole numbers: rounding once or twice is the same, so that fused and not fused agree.
  void exact_product() {
    std::string f[3];
    for (auto& s : f) {
      const std::string r = fresh(kInt);
      line(cat("and.b32 ", r, ", ", read(kInt), ", 31"));
      s = fresh(kFloat);
      line(cat("cvt.rn.f32.u32 ", s, ", ", r));
    }
    const std::string t = fresh(kFloat);
    line(cat("mul.f32 ", t, ", ", f[0], ", ", f[1]));
    emit("",
         cat("add.f32 ", write(kFloat, false), ", ", chance(50) ? cat(t, ", ", f[2]) : cat(f[2], ", ", t)));
  }

  // What becomes a mad, unless something between changes a factor.
  void product_and_sum() {
    const bool wide = chance(40);
    const Class c = wide ? kLong : chance(80) ? kInt : kLong;
    const std::string_view sign = chance(50) ? "u" : "s";
    const std::string t = fresh(c), a = read(wide ? kInt : c), b = operand(wide ? kInt : c);
    line(cat(wide ? "mul.wide." : "mul.lo.", sign, c == kLong && !wide ? "64 " : "32 ", t, ", ", a, ", ", b));
    if (chance(30)) arithmetic();
    const std::string g = guard(), other = operand(c);
    emit(g, cat("add.", sign, c == kLong ? "64 " : "32 ", write(c, !g.empty()), ", ",
                is_number(other) || chance(50) ? cat(t, ", ", other) : cat(other, ", ", t)));
    if (chance(20)) scopes_.back()[std::size_t(c)].push_back(t);
  }
  static bool is_number(const std::string& s) { return s[0] != '%'; }

  // ------------------------------------------------------------ memory
  /// Address of a word of this thread: "[%rdOut+12]" and the like. `write` leaves the inputs out.
  struct Place {
    std::string_view space;
    std::string base;
    std::uint32_t words;
  };
  Place place(bool to_write) {
    switch (below(to_write ? 3 : 4)) {
      case 0:
        return {"global", "%rdOut", 32};
      case 1:
        return {"shared", "%rS", 8};
      case 2:
        return {"local", "%rdL", 8};
      default:
        return {chance(50) ? "global.nc" : "global", "%rdIn", Shape::in_words};
    }
  }
  std::string address(const Place& p, std::uint32_t width) {
    const std::uint32_t word = std::uint32_t(below(p.words / width)) * width;
    if (chance(70)) return cat("[", p.base, "+", word * 4, "]");
    if (chance(40) && p.base[2] == 'd') {  // a sum that folds into the offset
      const std::string a = fresh(kLong);
      line(cat("add.s64 ", a, ", ", p.base, ", ", word * 4));
      return cat("[", a, "]");
    }
    const std::string index = fresh(kInt), offset = fresh(kInt);
    line(cat("and.b32 ", index, ", ", read(kInt), ", ", p.words / width - 1));
    if (p.base[2] == 'd') {
      const std::string a = fresh(kLong);
      line(cat("mad.wide.u32 ", a, ", ", index, ", ", 4 * width, ", ", p.base));
      return cat("[", a, "]");
    }
    line(cat("mad.lo.u32 ", offset, ", ", index, ", ", 4 * width, ", ", p.base));
    return cat("[", offset, "]");
  }

  void memory() {
    switch (below(7)) {
      case 0:
      case 1: {
        const Place p = place(false);
        const std::string g = guard(), a = address(p, 1);
        const bool f = chance(30);
        const Class c = f ? kFloat : kInt;
        return emit(g, cat("ld.", p.space, f ? ".f32 " : ".u32 ", write(c, !g.empty()), ", ", a));
      }
      case 2:
      case 3: {
        const Place p = place(true);
        const std::string g = guard(), a = address(p, 1);
        if (chance(30)) return emit(g, cat("st.", p.space, ".f32 ", a, ", ", operand(kFloat)));
        return emit(g, cat("st.", p.space, ".b32 ", a, ", ", operand(kInt)));
      }
      case 4:
        return neighbours();
      case 5: {
        const Place p = place(false);
        const std::string a = address(p, 2), x = fresh(kInt), y = fresh(kInt);
        line(cat("ld.", p.space, ".v2.u32 {", x, ", ", y, "}, ", a));
        scopes_.back()[kInt].push_back(x);
        scopes_.back()[kInt].push_back(y);
        return;
      }
      default: {
        const Place p = place(true);
        const std::string a = address(p, 2);
        const std::string v = read(kLong);
        return emit("", cat("st.", p.space, ".b64 ", a, ", ", v));
      }
    }
  }

  // Several scalar accesses beside each other, in any order, now and then with something between.
  void neighbours() {
    const bool store = chance(50);
    const Place p = place(store);
    const std::uint32_t n = 2 + std::uint32_t(below(3)), first = std::uint32_t(below(p.words - n + 1));
    const std::string g = guard();
    const bool down = chance(30);
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint32_t at = 4 * (first + (down ? n - 1 - k : k));
      const std::string a = cat("[", p.base, "+", at, "]");
      if (store) {
        const std::string v = read(kInt);
        emit(g, cat("st.", p.space, ".u32 ", a, ", ", v));
        if (v.size() == 3 && chance(30)) line(cat("xor.b32 ", v, ", ", v, ", 21"));  // a variable moves on
      } else
        emit(g, cat("ld.", p.space, ".u32 ", write(kInt, !g.empty()), ", ", a));
      if (chance(25)) arithmetic();
    }
  }

  // Every thread is here: barriers and warp-wide instructions.
  void collective() {
    const std::string x = read(kInt);
    switch (below(4)) {
      case 0: {
        const std::string p = fresh(kPred);
        emit("",
             cat("shfl.sync.bfly.b32 ", write(kInt, false), "|", p, ", ", x, ", ", below(32), ", 31, -1"));
        scopes_.back()[kPred].push_back(p);
        return;
      }
      case 1: {
        const std::string p = read(kPred);
        return emit("", cat("vote.sync.ballot.b32 ", write(kInt, false), ", ", p, ", -1"));
      }
      default: {
        const std::string r = fresh(kInt), word = cat(4 * below(8));
        line("bar.sync 0");
        line(cat("ld.shared.u32 ", r, ", [%rNeighbour+", word, "]"));
        line("bar.sync 0");
        scopes_.back()[kInt].push_back(r);
      }
    }
  }

  // ------------------------------------------------------------ control
  void branch(int depth) {
    const std::string p = read(kPred), otherwise = label(), end = label();
    const bool negated = chance(50), two = chance(40);
    line(cat(negated ? "@" : "@!", p, " bra ", two ? otherwise : end));
    block(depth - 1, false, 1 + int(below(chance(60) ? 3 : 8)));
    if (two) {
      line(cat("bra ", end));
      body_ += otherwise + ":\n";
      block(depth - 1, false, 1 + int(below(chance(60) ? 3 : 8)));
    }
    body_ += end + ":\n";
  }

  // A constant number of trips, one that all threads share, or one of the thread's own.
  void loop(int depth, bool uniform) {
    const std::string i = fresh(kInt), limit = fresh(kInt), p = fresh(kPred), top = label(), end = label();
    const std::uint64_t kind = below(3);
    const std::uint64_t trips = 1 + below(6), step = 1 + below(3), start = below(3);
    line(cat("mov.u32 ", i, ", ", start));
    std::string bound = cat(start + trips * step);
    if (kind != 0) {
      line(cat("and.b32 ", limit, ", ", kind == 1 ? "%rN" : read(kInt), ", 7"));
      bound = limit;
    }
    const bool together = uniform && kind != 2;
    const bool at_top = chance(60);
    body_ += top + ":\n";
    if (at_top) {
      line(cat(chance(50) ? "setp.ge.u32 " : "setp.ge.s32 ", p, ", ", i, ", ", bound));
      line(cat("@", p, " bra ", end));
    }
    scopes_.emplace_back();
    scopes_.back()[kInt].push_back(i);
    const int length = 1 + int(below(6));
    for (int k = 0; k < length; ++k) statement(depth - 1, together);
    if (chance(50)) indexed(i);
    scopes_.pop_back();
    const std::string next = chance(50) ? i : fresh(kInt);
    line(cat("add.s32 ", next, ", ", i, ", ", step));
    if (next != i) line(cat("mov.u32 ", i, ", ", next));
    if (at_top) {
      line(cat("bra ", top));
    } else {
      line(cat("setp.lt.u32 ", p, ", ", i, ", ", bound));
      line(cat("@", p, " bra ", top));
    }
    body_ += end + ":\n";
  }

  // An address that follows the loop's counter, which stays below 32.
  void indexed(const std::string& i) {
    const std::string a = fresh(kLong), v = fresh(kInt);
    if (chance(50)) {
      line(cat("mad.wide.u32 ", a, ", ", i, ", 4, %rdOut"));
    } else {
      const std::string w = fresh(kLong), s = fresh(kLong);
      line(cat("cvt.u64.u32 ", w, ", ", i));
      line(cat("shl.b64 ", s, ", ", w, ", 2"));
      line(cat("add.s64 ", a, ", ", s, ", %rdOut"));
    }
    line(cat("ld.global.u32 ", v, ", [", a, "]"));
    line(cat("mad.lo.s32 ", v, "x, ", v, ", 8, ", i));
    line(cat("st.global.u32 [", a, "], ", v, "x"));
    named_.push_back(v + "x");
  }

  // ------------------------------------------------------------ frame
  std::string header() {
    std::string s =
        ".version 8.0\n.target sm_90\n.address_size 64\n\n.visible .entry program(\n"
        "\t.param .u64 .ptr .global .align 64 in,\n\t.param .u64 .ptr .global .align 256 out,\n"
        "\t.param .u32 n\n)\n{\n";
    for (int c = 0; c < kClasses; ++c)
      s += cat("\t.reg .", kType[std::size_t(c)], " ", kPrefix[std::size_t(c)], "<", next_[std::size_t(c)],
               ">;\n");
    s += "\t.reg .b32 %rS, %rN, %rTid, %rNeighbour;\n\t.reg .b64 %rdIn, %rdOut, %rdL;\n";
    for (const auto& name : named_) s += cat("\t.reg .b32 ", name, ";\n");
    s += "\t.shared .align 32 .b8 slots[2048];\n\t.local .align 16 .b8 own[32];\n";
    return s;
  }

  void prologue() {
    body_ =
        "\tld.param.u64 %rdIn, [in];\n\tld.param.u64 %rdOut, [out];\n\tld.param.u32 %rN, [n];\n"
        "\tcvta.to.global.u64 %rdIn, %rdIn;\n\tcvta.to.global.u64 %rdOut, %rdOut;\n"
        "\tmov.u32 %rTid, %tid.x;\n\tshl.b32 %rS, %rTid, 5;\n\tmov.u32 %rNeighbour, slots;\n"
        "\tadd.s32 %rS, %rS, %rNeighbour;\n\txor.b32 %r0, %rTid, 33;\n"
        "\tmad.lo.u32 %rNeighbour, %r0, 32, %rNeighbour;\n\tmov.u64 %rdL, own;\n"
        "\tmov.u32 %r1, %ctaid.x;\n\tmov.u32 %r2, %ntid.x;\n\tmad.lo.u32 %r3, %r1, %r2, %rTid;\n";
    line(cat("mad.wide.u32 %rdIn, %r3, ", Shape::in_words * 4, ", %rdIn"));
    line(cat("mad.wide.u32 %rdOut, %r3, ", Shape::out_words * 4, ", %rdOut"));
    for (int k = 0; k < kPool; ++k) {
      if (o_.constant) {
        line(cat("mov.u32 %r", k, ", ", integer(32)));
        line(cat("mov.u64 %rd", k, ", ", integer(64)));
        line(cat("cvt.rn.f32.s32 %f", k, ", ", integer(16)));
      } else {
        line(cat("ld.global.u32 %r", k, ", [%rdIn+", 4 * k, "]"));
        line(cat("ld.global.u64 %rd", k, ", [%rdIn+", 16 + 8 * k, "]"));
        line(cat("ld.global.f32 %f", k, ", [%rdIn+", 48 + 4 * k, "]"));
      }
      line(cat("cvt.u16.u32 %h", k, ", %r", k));
      line(cat("cvt.f64.f32 %fd", k, ", %f", k));
      line(cat("setp.lt.s32 %p", k, ", %r", k, ", ", int(below(200)) - 100));
    }
    for (int k = 0; k < 8; ++k) {
      line(cat("st.shared.u32 [%rS+", 4 * k, "], %r", k % kPool));
      line(cat("st.local.u32 [%rdL+", 4 * k, "], %r", (k + 1) % kPool));
    }
    for (auto& n : next_) n = kPool;
  }

  // Everything that a pass could have spoilt goes to memory.
  void epilogue() {
    std::uint32_t at = 128;
    const auto store = [&](std::string_view type, const std::string& r, std::uint32_t bytes) {
      line(cat("st.global.", type, " [%rdOut+", at, "], ", r));
      at += bytes;
    };
    for (int k = 0; k < kPool; ++k) {
      store("u64", cat("%rd", k), 8);
      store("f64", cat("%fd", k), 8);
    }
    for (int k = 0; k < kPool; ++k) {
      store("u32", cat("%r", k), 4);
      store("f32", cat("%f", k), 4);
      line(cat("selp.u32 %rTid, 1, 0, %p", k));
      store("u16", cat("%h", k), 2);
      store("u16", "%rTid", 2);
    }
    line("bar.sync 0");
    line("ld.shared.u32 %rTid, [%rNeighbour+4]");
    store("u32", "%rTid", 4);
    line("ld.local.u32 %rTid, [%rdL+8]");
    store("u32", "%rTid", 4);
    line("ret");
  }

  SplitMix64 random_;
  ProgramOptions o_;
  std::string body_;
  std::array<int, kClasses> next_{};
  int labels_ = 0;
  std::vector<std::array<std::vector<std::string>, kClasses>> scopes_;
  std::vector<std::string> named_;
  std::string pending_;
  Class pending_class_ = kPred;
};

}  // namespace

std::string random_program(std::uint64_t seed, const ProgramOptions& options) {
  return Generator(seed, options).run();
}

}  // namespace cgp::passes_test
