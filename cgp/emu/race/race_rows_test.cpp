// SPDX-License-Identifier: Apache-2.0
// Rows of words that a warp accesses together have short cuts in the memory handlers and in the race
// detector; the portable handlers look at every lane. Random kernels, most of them full of races, must give
// the same memory, the same counts and the same findings, word for word, both ways.
#include <random>

#include "cgp/emu/core/run_ptx_impl.h"

namespace cgp::emu {
namespace {
using namespace testing;
using text::cat;

constexpr std::uint32_t kSharedBytes = 4096, kGlobalBytes = 16384, kThreads = 96, kBlocks = 2;

class Writer {
 public:
  explicit Writer(std::uint32_t seed) : random_(seed), barriers_(seed % 3 == 0) {}
  std::string kernel() {
    for (int i = 0; i < 36; ++i) {
      statement();
      if (barriers_) say("bar.sync 0;");
    }
    return cat(
        header(), ".visible .entry k(.param .u64 pg, .param .u64 pc)\n{\n",
        ".reg .u64 %g, %c, %x; .reg .b32 %t, %l, %w, %s, %a, %v<4>, %n; .reg .b64 %d; .reg .b16 %h; "
        ".reg .pred %p, %q;\n",
        ".shared .align 128 .b8 buf[", kSharedBytes, "];\n",
        "ld.param.u64 %g, [pg]; ld.param.u64 %c, [pc]; mov.u32 %t, %tid.x; and.b32 %l, %t, 31; shr.u32 %w, "
        "%t, 5;\n",
        "mov.u32 %s, buf; mov.u32 %n, 0; mov.u32 %v0, %t; mov.u32 %v1, 7; mov.u32 %v2, %w; mov.u32 %v3, %l; "
        "mov.u64 %d, 5; mov.u16 %h, 3;\n",
        "LOOP:\n", body_, "add.u32 %n, %n, 1; setp.lt.u32 %p, %n, ", 1 + pick(3),
        "; @%p bra LOOP;\nret;\n}\n");
  }

 private:
  std::uint32_t pick(std::uint32_t n) { return std::uint32_t(random_() % n); }
  void say(const std::string& s) { body_ += s + "\n"; }

  // Byte offset of the thread in %a: inside `bytes`, aligned to `size`.
  void address(std::uint32_t bytes, std::uint32_t size) {
    const std::uint32_t line = pick(bytes / 128) * 128, half = bytes / 2;
    switch (pick(13)) {
      case 0:
      case 1:
        say(cat("mul.lo.u32 %a, %t, ", size, "; add.u32 %a, %a, ", line % half, ";"));
        break;
      case 2:
        say(cat("mul.lo.u32 %a, %l, ", size, "; add.u32 %a, %a, ", line % half, ";"));
        break;
      case 3:  // not at the start of a line
        say(cat("mul.lo.u32 %a, %t, ", size, "; add.u32 %a, %a, ", (line % half) + size * (1 + pick(31)),
                ";"));
        break;
      case 4:  // a line with its words turned
        say(cat("xor.b32 %a, %t, ", pick(32), "; mul.lo.u32 %a, %a, ", size, "; add.u32 %a, %a, ",
                line % half, ";"));
        break;
      case 5:
        say(cat("mov.u32 %a, ", line, ";"));
        break;
      case 6:
        say(cat("mad.lo.u32 %a, %l, ", 33 * size, ", ", (line % half) * size, ";"));
        break;
      case 7:
        say(cat("shr.u32 %a, %l, ", 1 + pick(3), "; mul.lo.u32 %a, %a, ", size, "; add.u32 %a, %a, ",
                line % half, ";"));
        break;
      case 10:  // blocks of few columns: lanes read the same row or column of a tile
        say(cat("shr.u32 %a, %l, ", 2 + pick(4), "; mad.lo.u32 %a, %a, ", size * (4 + pick(30)), ", ",
                line % half, ";"));
        break;
      case 11:
        say(cat("and.b32 %a, %l, ", (1 << (1 + pick(4))) - 1, "; mad.lo.u32 %a, %a, ", size, ", ",
                (line % half) + size * pick(32), ";"));
        break;
      case 8:  // rows of a tile
      case 9:
        say(cat("div.u32 %a, %l, ", 128 / size, "; mul.lo.u32 %a, %a, ", 128 * (1 + pick(4)) + 64 * !pick(4),
                "; rem.u32 %v3, %l, ", 128 / size, "; mad.lo.u32 %a, %v3, ", size,
                ", %a; mad.lo.u32 %a, %w, ", pick(3) * 128, ", %a; add.u32 %a, %a, ", line % half, ";"));
        break;
      default:
        say(cat("mad.lo.u32 %a, %t, ", 2 * pick(2000) + 1, ", ", pick(4096), "; mul.lo.u32 %a, %a, ", size,
                ";"));
        break;
    }
    say(cat("and.b32 %a, %a, ", bytes - size, ";"));
  }

  void access(bool shared) {
    struct Kind {
      const char *type, *value;
      std::uint32_t bytes;
    };
    static constexpr Kind kinds[] = {{".b32", "%v0", 4},
                                     {".b32", "%v1", 4},
                                     {".f32", "%v0", 4},
                                     {".v2.b32", "{%v0, %v1}", 8},
                                     {".v4.b32", "{%v0, %v1, %v2, %v3}", 16},
                                     {".v2.b32", "{%v2, %v0}", 8},
                                     {".b64", "%d", 8},
                                     {".b16", "%h", 2}};
    const Kind& k = kinds[pick(16) ? pick(7) : 7];
    address(shared ? kSharedBytes : kGlobalBytes, k.bytes);
    const bool load = pick(5) < 3;
    std::string at;
    if (shared) {
      say("add.u32 %a, %a, %s;");
      at = "[%a]";
    } else {
      say(cat("cvt.u64.u32 %x, %a; add.u64 %x, %x, ", load && !pick(8) ? "%c" : "%g", ";"));
      at = "[%x]";
    }
    std::string guard;
    if (!pick(6)) {
      say(cat("setp.", pick(2) ? "lt" : "ne", ".u32 %q, ", pick(2) ? "%l" : "%t", ", ", pick(40), ";"));
      guard = "@%q ";
    }
    const std::string where = shared ? ".shared" : ".global";
    say(load ? cat(guard, "ld", where, k.type, " ", k.value, ", ", at, ";")
             : cat(guard, "st", where, k.type, " ", at, ", ", k.value, ";"));
  }

  void statement() {
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
        return say("bar.sync 0;");
      case 3:
        return say(pick(2) ? "bar.warp.sync 0xffffffff;" : "membar.cta;");
      case 4:
        return say("xor.b32 %v0, %v0, 5; add.u32 %v2, %v2, %t;");
      default:
        return access(pick(3) != 0);
    }
  }

  std::mt19937 random_;
  bool barriers_;  // behind every statement
  std::string body_;
};

struct Outcome {
  std::string findings, counts;
  std::vector<std::uint8_t> memory;
};

Outcome run(const std::string& text, bool portable, SchedulePolicy schedule, int workers) {
  Bench bench(text, portable);
  const std::uint64_t c = bench.machine.alloc(kGlobalBytes, "read only");
  bench.machine.fill(c, 1, kGlobalBytes);
  const std::uint64_t g = bench.machine.alloc(kGlobalBytes, "global");
  bench.machine.fill(g, 1, kGlobalBytes / 2);
  Options o;
  o.workers = workers;
  o.schedule = schedule;
  const Result r = bench.run("k", {kBlocks, 1, 1}, {kThreads, 1, 1}, Params().add(g).add(c), o);
  Outcome out;
  for (const Finding& f : r.findings) out.findings += cat(f.count, " times: ", describe(f), "\n");
  for (const auto& [name, n] : flatten(r.counters)) out.counts += cat(name, " ", n, "\n");
  for (const PcCounters& p : r.counters.per_pc)
    out.counts += cat(p.issues, " ", p.lanes, " ", p.requests, " ", p.sectors, " ", p.bytes, " ",
                      p.wavefronts, " ", p.conflicts, " ", p.divergent, "\n");
  out.memory = bench.download<std::uint8_t>(g, kGlobalBytes);
  return out;
}

TEST(RaceRows, ShortCutsChangeNothing) {
  int found = 0;
  for (std::uint32_t seed = 1; seed <= 120; ++seed) {
    const std::string text = Writer(seed).kernel();
    const auto schedule = seed % 3 ? SchedulePolicy::fair : SchedulePolicy::adversarial;
    const Outcome rows = run(text, false, schedule, 1), lanes = run(text, true, schedule, 1);
    found += !lanes.findings.empty();
    ASSERT_EQ(rows.findings, lanes.findings) << "seed " << seed << "\n" << text;
    ASSERT_EQ(rows.counts, lanes.counts) << "seed " << seed << "\n" << text;
    ASSERT_EQ(rows.memory, lanes.memory) << "seed " << seed << "\n" << text;
  }
  EXPECT_GT(found, 60);
}
}  // namespace
}  // namespace cgp::emu
