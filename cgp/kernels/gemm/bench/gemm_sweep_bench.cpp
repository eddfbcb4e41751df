// SPDX-License-Identifier: Apache-2.0
// Build-time choices of gemm's sm_90a kinds against each other and the best of cuBLASLt, problem by problem:
// the data behind gemm_select.cpp.
//   cgp_gemm_sweep [--rounds N] [--top N] [--all FILE] [--table FILE] [--only PART] [--wide] [--rest N]
//   [--both]
//   [--non-persistent N] [--families N] [--seconds N] [--device emu:sm_90a] PROBLEM...
// PROBLEM: a group (floor, square, few, middle, many, batched, misaligned) or
// [f16:][beta:][padN:][nn|nt|tn|tt:]MxNxK[xBATCH]; beta: C is added to; pad: N more elements between all
// rows.
// --only: candidates whose name contains PART, or one of several between commas. --rest: the GPU idles N
// times as long as it has worked, so that large problems are measured below its power limit. --both: back to
// back and then, of what was within 8 %, resting (--rest, else 3); the winner is who loses least in the worse
// of both. --wide: also tilings that gemm's own list leaves out; --non-persistent: N of one wave. --families: of
// those that differ in their tiles alone the one that is predicted fastest, of N such families. --seconds:
// stops behind the problem during which they are over. FILE gets a line for each problem and candidate (and
// state: name, microseconds, state), that of --table one for each problem and winner (gemm_table.h) that
// beats what gemm would run by 1 % or more. Candidates more than 8 % behind after three rounds are timed no
// further.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/bench/gemm_compile_bench.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/gemm/select/gemm_tilings_sm90.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/peers/peer_cublaslt.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using runtime::Stream;

struct Settings {
  int rounds = 9, top = 6, algorithms = 32, non_persistent = 0, families = 0;
  std::string only, device = "cuda:0";
  std::ofstream all, table;
  bool wide = false, both = false;
  double rest = 0, seconds = 1e9;
  /// Whether --only lets a variant through.
  bool takes(const std::string& name) const {
    if (only.empty()) return true;
    for (const auto part : text::split(only, ','))
      if (name.find(part) != std::string::npos) return true;
    return false;
  }
};

std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// ---------------------------------------------------------------- candidates
class Candidates {
 public:
  Candidates(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d)
      : p_(p), at_(at), d_(d) {
    if (p.trans_b && !p.trans_a) skinny();
    split();
    stream();
    persistent();
    tail();
  }
  std::vector<GemmChoice> take(const Settings& s) {
    std::vector<GemmChoice> out;
    for (auto& c : all_)
      if (reject(c.kind, p_, at_, d_).empty() && s.takes(c.variant.name)) out.push_back(std::move(c));
    return out;
  }

 private:
  void add(GemmFamily kind, GemmVariant v, int bm, int bn, int cluster) {
    GemmChoice c{kind, std::move(v), {}, std::uint32_t(bn), cluster};
    c.tile_m = std::uint32_t(bm);
    all_.push_back(std::move(c));
  }
  void skinny() {
    if (p_.m <= 32)
      for (int rows : {16, 32})
        for (int warps : {4, 8})
          for (int unroll : {2, 4, 8})
            for (bool first : {false, true}) {
              const int cols = p_.m <= 8 ? 8 : p_.m <= 16 ? 16 : 32;
              if (rows * unroll > 128 || cols * unroll > 128 || (rows == 32 && unroll == 8)) continue;
              add(GemmFamily::skinny, gemm_skinny(p_.type, {rows, cols, warps, unroll, 0, first}), cols, rows,
                  1);
            }
    if (p_.m >= 32 && p_.flops() < 5e8)
      for (auto [rows, cols] : {std::pair{16, 16}, {32, 16}, {16, 32}, {32, 32}, {64, 32}})
        for (int warps : {2, 4, 8})
          for (int unroll : {1, 2, 4}) {
            if ((rows + cols) * unroll > 192) continue;
            add(GemmFamily::skinny, gemm_skinny(p_.type, {rows, cols, warps, unroll, 0, false}), cols, rows,
                1);
          }
  }
  void split() {
    const std::uint64_t k_tiles = up(p_.k, 64), sms = std::uint64_t(d_.sm_count);
    for (auto [bm, bn] : {std::pair{64, 32}, {64, 64}, {64, 128}, {64, 256}, {128, 64}, {128, 128}})
      for (int split : {1, 2, 4}) {
        const std::uint64_t tiles = up(p_.m, unsigned(bm)) * up(p_.n, unsigned(bn)) * p_.batch;
        if (k_tiles < 2u * unsigned(split) || (split > 1 && bm * bn > 128 * 128) ||
            tiles * split > 20 * sms || (split > 1 && (tiles * split > 4 * sms || bn == 32)) ||
            (bm == 128 && p_.m <= 64) || (bn == 32 && (!p_.trans_b || tiles > 2 * sms)))
          continue;
        const int stage = (bm + bn) * 128, exchange = split > 1 ? bm * bn * 4 : 0;
        for (int min_blocks : {1, 2})
          for (bool first : {false, true}) {
            const int stages =
                std::min<int>({8, (227 * 1024 / min_blocks - 2048 - exchange) / stage, int(k_tiles)});
            if (stages < 2 || (min_blocks == 2 && (bm * bn > 64 * 128 || tiles * split <= sms)) ||
                (first && p_.m > 256))
              continue;
            for (int group : {0, 8}) {
              if (group == 0 && tiles * split > 3 * sms) continue;
              add(GemmFamily::sm90_cluster_split_k,
                  gemm_cluster_split_k_sm90(p_.type, p_.trans_a, p_.trans_b, bm, bn,
                                            {stages, split, min_blocks, group, first}),
                  bm, bn, split);
              all_.back().by_grid = group == 0;
            }
          }
      }
  }
  void stream() {
    if (p_.trans_a || p_.m > 64) return;
    const int tokens = p_.m <= 8 ? 8 : p_.m <= 16 ? 16 : p_.m <= 32 ? 32 : 64;
    for (int rows : {64, 128, 192})
      for (int depth : {64, 128})
        for (int min_blocks : {1, 2, 3, 4})
          for (bool first : {true, false}) {
            if (!p_.trans_b && (rows != 128 || depth != 64)) continue;
            const int stage = (rows + tokens) * depth * 2, threads = 2 * rows + 32;
            const int stages = std::min(16, (227 * 1024 / min_blocks - 2048) / stage);
            if (stages < 3 || threads * min_blocks > 2048 || (!first && rows != 128)) continue;
            add(GemmFamily::sm90_small_m,
                gemm_small_m_sm90(p_.type, p_.trans_b, {tokens, rows, depth, stages, min_blocks, first}),
                tokens, rows, 1);
            all_.back().tile_k = std::uint32_t(depth), all_.back().min_blocks = min_blocks;
          }
  }
  void persistent() {
    if (p_.m < 96) return;
    for (int bn : {128, 192, 256})
      for (int cluster : {1, 2}) {
        if (p_.flops() > 1e12 && bn == 128) continue;
        if (cluster == 2 && p_.m <= 128) continue;
        all_.push_back(
            choose_persistent_sm90(p_.type, p_.trans_a, p_.trans_b, {.cols = bn, .cluster = cluster}));
      }
  }
  void tail() {
    using L = GemmLines;
    const bool every = !p_.trans_a && p_.trans_b;
    const std::uint64_t sms = std::uint64_t(d_.sm_count), k_tiles = up(p_.k, 64);
    const int bm = p_.m <= 64 ? 64 : 128;
    const auto one = [&](int bn, GemmStreamKTuning t) {
      t.stages = gemm_stream_k_stages(bm, bn, t.buffers);
      add(GemmFamily::sm90_stream_k, gemm_stream_k_sm90(p_.type, p_.trans_a, p_.trans_b, bm, bn, t), bm, bn,
          t.split);
    };
    for (int bn : {112, 128, 144, 160, 176, 192, 208, 224, 240, 256}) {
      if (!every && bn != 128 && bn != 192 && bn != 256) continue;
      if (bm == 64 && bn > 144 && bn != 192 && bn != 256) continue;
      if (bm == 64 && bn == 160) continue;
      GemmStreamKTuning t;
      t.buffers = gemm_stream_k_buffers(bn);
      one(bn, t);
      if (p_.m <= 512) t.b = L::first, one(bn, t);
      t.b = L::normal, t.c = L::first;
      if (p_.m > 512) one(bn, t);
      if (bn != 176 && bn != 256) continue;
      t.c = L::normal, t.group = 16;
      if (p_.m > 1024) one(bn, t);
      t.group = 8;
      if (bn == 176) t.buffers = 1, one(bn, t);
    }
    for (int bn : {128, 256}) {
      const std::uint64_t tiles = up(p_.m, 128) * up(p_.n, unsigned(bn)) * p_.batch;
      for (int split : {2, 4}) {
        const std::uint64_t clusters = sms / unsigned(split), left = tiles % (clusters * unsigned(split));
        GemmStreamKTuning t;
        t.split = split;
        if (bm == 64 || bn / split < 64 || !left || left > clusters || k_tiles < unsigned(split)) continue;
        one(bn, t);
        if (p_.m <= 512) t.b = L::first, one(bn, t);
      }
    }
  }
  GemmProblem p_;
  GemmAddresses at_;
  runtime::DeviceInfo d_;
  std::vector<GemmChoice> all_;
};

// ---------------------------------------------------------------- one problem
// The largest distance of 4 rows of two results, over the root of the mean square of the first.
template <class T>
double distance(const runtime::Buffer<std::uint8_t>& x, const runtime::Buffer<std::uint8_t>& y,
                const GemmProblem& p) {
  double worst = 0, squares = 0;
  std::uint64_t count = 0;
  for (std::uint64_t r : {std::uint64_t(0), p.m / 3, p.m - 1, p.batch * p.m - 1}) {
    const auto at = (r / p.m * p.stride_c + r % p.m * p.ldc) * 2;
    const auto a = x.slice(at, p.n * 2).to_vector(), b = y.slice(at, p.n * 2).to_vector();
    for (std::uint64_t i = 0; i < p.n; ++i) {
      T u, v;
      std::memcpy(&u, &a[2 * i], 2), std::memcpy(&v, &b[2 * i], 2);
      const double e = std::fabs(double(u) - double(v));
      if (!(e <= worst)) worst = e;  // NaN too
      squares += double(u) * double(u), ++count;
    }
  }
  return worst / std::sqrt(squares / double(count));
}

class Sweep {
 public:
  explicit Sweep(Settings s)
      : settings_(std::move(s)),
        device_(runtime::Device::open(settings_.device)),
        random_(device_),
        flush_(device_, device_.is_emulator() ? 1u << 20 : 256u << 20) {
    try {
      lt_ = std::make_unique<measure::CublasLt>(device_);
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
  }

  void run(const GemmProblem& q) {
    const GemmProblem p = q.dense();
    const auto more = p.ldc - p.n;
    const auto name = text::cat(cgp::name(p.type), p.beta != 0 ? ":beta:" : ":",
                                more ? text::cat("pad", more, ":") : std::string(), p.trans_a ? "t" : "n",
                                p.trans_b ? "t" : "n", ":", p.m, "x", p.n, "x", p.k,
                                p.batch > 1 ? text::cat("x", p.batch) : std::string());
    const auto x = random_(p.type, p.a_elements(), 1), y = random_(p.type, p.b_elements(), 2);
    runtime::Buffer<std::uint8_t> c(device_, p.c_elements() * 2), theirs(device_, p.c_elements() * 2);
    const GemmAddresses at{x.address(), y.address(), c.address()};
    const auto choices = choices_for(p, at);
    load_all(device_, choices);

    std::vector<measure::Contender> contenders;
    const measure::CublasLtOperands there{x.address(), y.address(), theirs.address()};
    measure::CublasLtPlan best;
    if (lt_) {
      best = lt_->search(lt_problem(p), there, settings_.algorithms);
      contenders.push_back({text::cat("cublaslt ", best.text()), [&](Stream& s) { best.run(s, there); }});
      theirs.fill_bytes(0x3e);
      best.run(device_.stream(), there);
      device_.stream().wait();
    }
    for (const auto& choice : choices) try {
        c.fill_bytes(p.beta != 0 ? 0x3e : 0xff);  // 0.19 in both, or NaN
        run_gemm(device_.stream(), choice, p, at);
        device_.stream().wait();
        if (lt_) {
          const double wrong =
              p.type == DType::bf16 ? distance<bfloat16>(theirs, c, p) : distance<half>(theirs, c, p);
          if (!(wrong < 0.06))
            std::printf("%s %s: WRONG by %g\n", name.c_str(), choice.variant.name.c_str(), wrong);
        }
        contenders.push_back({text::cat(&choice == &choices[0] ? "*" : "", choice.variant.name),
                              [&](Stream& s) { run_gemm(s, choice, p, at); }});
      } catch (const Error& e) {
        std::printf("%s %s: %s\n", name.c_str(), choice.variant.name.c_str(), e.what());
      }
    auto hot = timed(contenders, settings_.both ? 0 : settings_.rest);
    if (!settings_.both) return report(name, p, std::move(hot));
    // Resting: what is close, the peer and what gemm would run.
    double least = 1e30;
    for (const auto& t : hot) least = std::min(least, t.summary.median);
    std::vector<measure::Contender> close;
    std::vector<measure::Timing> then;
    for (std::size_t i = 0; i < hot.size(); ++i)
      if (i <= std::size_t(lt_ ? 1 : 0) || hot[i].summary.median <= 1.08 * least)
        close.push_back(contenders[i]), then.push_back(hot[i]);
    const auto cool = timed(close, settings_.rest > 0 ? settings_.rest : 3);
    for (const auto& t : hot) line(name, t, "hot");
    for (const auto& t : cool) line(name, t, "resting");
    judge(name, p, then, cool);
  }

  bool over() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() >
           settings_.seconds;
  }

  static bool is_slow(GemmFamily f) {
    return f == GemmFamily::naive || f == GemmFamily::simt || f == GemmFamily::misaligned ||
           f == GemmFamily::sm80;
  }
  // What gemm would run comes first; of large products nothing that the model thinks far too slow.
  std::vector<GemmChoice> choices_for(const GemmProblem& p, const GemmAddresses& at) {
    std::vector<GemmChoice> all = gemm_candidates(p, at, device_.info());
    if (settings_.wide)
      for (auto& c : Candidates(p, at, device_.info()).take(settings_)) all.push_back(std::move(c));
    for (auto& c :
         gemm_non_persistent_candidates_sm90(p, at, device_.info(), std::size_t(settings_.non_persistent)))
      if (settings_.takes(c.variant.name)) all.push_back(std::move(c));
    if (settings_.families) all = families_of(p, std::move(all), std::size_t(settings_.families));
    double least = 1e30;
    for (const auto& c : all)
      if (c.microseconds > 0) least = std::min(least, c.microseconds);
    std::vector<GemmChoice> out{select_gemm(p, at, device_.info(), GemmTable::shipped(device_.info()))};
    for (auto& c : all) {
      const bool had = std::any_of(out.begin(), out.end(),
                                   [&](const auto& x) { return x.variant.name == c.variant.name; });
      const bool slow = p.flops() > 1e11 && c.microseconds > 1.5 * least;
      const bool slow_family = p.flops() > 1e9 && is_slow(c.kind);
      if (!had && !slow && !slow_family && settings_.takes(c.variant.name)) out.push_back(std::move(c));
    }
    if (out[0].kind == GemmFamily::misaligned)
      if (auto copied = select_packed_gemm(p, at, device_.info())) out.push_back(std::move(*copied));
    return out;
  }

  // Of each form (a config without its tile, stages and group) the one that is predicted fastest.
  static std::vector<GemmChoice> families_of(const GemmProblem& p, std::vector<GemmChoice> all,
                                             std::size_t most) {
    std::erase_if(all, [&](const GemmChoice& c) {
      return is_slow(c.kind) && c.kind != GemmFamily::misaligned && p.flops() > 1e7;
    });
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
    std::vector<std::string> have;
    std::erase_if(all, [&](const GemmChoice& c) {
      GemmConfig form = c.variant.config;
      form.tile_m = form.tile_n = form.tile_k = form.stages = form.group = 0;
      std::string family = print(form);
      if (have.size() >= most || std::find(have.begin(), have.end(), family) != have.end()) return true;
      have.push_back(std::move(family));
      return false;
    });
    return all;
  }

  // Rounds in an order of their own each, so that no contender always follows the same other: what one does
  // to clocks and heat goes to all of them.
  std::vector<measure::Timing> timed(const std::vector<measure::Contender>& contenders, double rest) {
    std::vector<measure::Timing> out;
    for (const auto& c : contenders) out.push_back({c.name, {}, {}});
    Stream stream(device_);
    runtime::Event start(device_), stop(device_);
    std::vector<std::size_t> order(contenders.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(1);
    for (int round = -1; round < settings_.rounds; ++round) {
      if (round == 3) drop_slow(out, order);
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t c : order) {
        stream.fill(flush_.all().region(), std::uint8_t(round));
        const double took = milliseconds(stream, start, stop, [&] { contenders[c].run(stream); });
        if (round >= 0) out[c].milliseconds.push_back(took);
        if (rest > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(rest * took));
      }
    }
    for (auto& t : out) t.summary = measure::summarise(t.milliseconds);
    return out;
  }

  // The emulator has no clock: what the host takes, to try a sweep without a GPU.
  template <class F>
  double milliseconds(Stream& stream, runtime::Event& start, runtime::Event& stop, F&& work) const {
    const auto begun = std::chrono::steady_clock::now();
    if (!device_.is_emulator()) stream.record(start);
    work();
    if (!device_.is_emulator()) stream.record(stop);
    stream.wait();
    if (!device_.is_emulator()) return stop.milliseconds_since(start);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
  }

  // Keeps what is within 8 % of the fastest, the peer and what gemm would run.
  void drop_slow(const std::vector<measure::Timing>& timed, std::vector<std::size_t>& order) const {
    const auto median = [&](std::size_t i) { return measure::summarise(timed[i].milliseconds).median; };
    double least = 1e30;
    for (const auto i : order) least = std::min(least, median(i));
    order.erase(std::remove_if(order.begin(), order.end(),
                               [&](std::size_t i) { return i > 1 && median(i) > 1.08 * least; }),
                order.end());
  }

  // What a launch costs: nothing between two events, and kernels that do nothing.
  void floor() {
    const auto empty = [](const char* name, auto fn) { return variant(name, 90, fn); };
    const auto one = load(device_, empty(
                                       "empty_small", +[](dsl::Kernel& k) { k.block(128); }));
    const auto large = load(device_, empty(
                                         "empty_large", +[](dsl::Kernel& k) {
                                           k.block(384);
                                           (void)k.smem(200 << 10, 128, Here::now());
                                         }));
    const auto pair = load(device_, empty(
                                        "empty_pair", +[](dsl::Kernel& k) {
                                          k.cluster(2);
                                          k.block(384);
                                          (void)k.smem(200 << 10, 128, Here::now());
                                        }));
    std::vector<measure::Contender> contenders{{"nothing", [](Stream&) {}},
                                               {"1 block of 128",
                                                [&](Stream& s) {
                                                  one(s, runtime::Dim3{1, 1, 1});
                                                }},
                                               {"132 blocks of 128",
                                                [&](Stream& s) {
                                                  one(s, runtime::Dim3{132, 1, 1});
                                                }},
                                               {"132 blocks of 384, 200 KB",
                                                [&](Stream& s) {
                                                  large(s, runtime::Dim3{132, 1, 1});
                                                }},
                                               {"66 pairs of 384, 200 KB",
                                                [&](Stream& s) {
                                                  pair(s, runtime::Dim3{132, 1, 1});
                                                }},
                                               {"1056 blocks of 128", [&](Stream& s) {
                                                  one(s, runtime::Dim3{1056, 1, 1});
                                                }}};
    measure::CompareOptions o;
    for (const auto& t : measure::compare(device_, contenders, o))
      std::printf("floor %-28s %7.2f us ±%.1f%%\n", t.name.c_str(), 1e3 * t.summary.median,
                  100 * t.summary.spread());
    for (int size : {2, 4, 8})
      std::printf(
          "clusters of %d with 200 KB a block: %d at once\n", size,
          large.max_active_clusters({.grid = {unsigned(size), 1, 1}, .cluster = {unsigned(size), 1, 1}}));
  }

 private:
  static measure::CublasLtGemm lt_problem(const GemmProblem& p) {
    const auto n = [](std::uint64_t v) { return std::int64_t(v); };
    measure::CublasLtGemm g{.a = p.type, .b = p.type, .c = p.type};
    g.trans_a = p.trans_a, g.trans_b = p.trans_b, g.m = n(p.m), g.n = n(p.n), g.k = n(p.k);
    g.batch = n(p.batch), g.beta = p.beta;
    g.lda = n(p.lda), g.ldb = n(p.ldb), g.ldc = n(p.ldc);
    g.stride_a = n(p.stride_a), g.stride_b = n(p.stride_b), g.stride_c = n(p.stride_c);
    return g;
  }
  void line(const std::string& name, const measure::Timing& x, const char* state) {
    if (settings_.all)
      settings_.all << name << " " << x.name << " " << 1e3 * x.summary.median << (*state ? " " : "") << state
                    << std::endl;
  }
  // Two states of the same contenders: by the worse of both distances to the fastest of ours.
  void judge(const std::string& name, const GemmProblem& p, const std::vector<measure::Timing>& hot,
             const std::vector<measure::Timing>& cool) {
    const std::size_t first = lt_ ? 1 : 0;
    double least[2] = {1e30, 1e30};
    for (std::size_t i = first; i < hot.size(); ++i) {
      least[0] = std::min(least[0], hot[i].summary.median);
      least[1] = std::min(least[1], cool[i].summary.median);
    }
    const auto behind = [&](std::size_t i) {
      return std::max(hot[i].summary.median / least[0], cool[i].summary.median / least[1]);
    };
    std::vector<std::size_t> order;
    for (std::size_t i = first; i < hot.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return behind(a) < behind(b); });
    std::printf("%s\n", name.c_str());
    const auto row = [&](std::size_t i) {
      std::printf("  %8.2f us hot %8.2f us resting  %.3f %.3f  %s\n", 1e3 * hot[i].summary.median,
                  1e3 * cool[i].summary.median, lt_ ? hot[0].summary.median / hot[i].summary.median : 0,
                  lt_ ? cool[0].summary.median / cool[i].summary.median : 0, hot[i].name.c_str());
    };
    if (lt_) row(0);
    for (std::size_t r = 0; r < order.size(); ++r)
      if (int(r) < settings_.top || order[r] == first) row(order[r]);
    std::fflush(stdout);
    const auto best = order.empty() ? first : order[0];
    if (settings_.table && best != first && behind(first) > 1.01 * behind(best))
      settings_.table << gemm_key(p) << " " << hot[best].name << " " << 1e3 * hot[best].summary.median
                      << std::endl;
  }
  void report(const std::string& name, const GemmProblem& p, std::vector<measure::Timing> t) {
    const double peer = lt_ ? t[0].summary.median : 0;
    const std::string selected = t[lt_ ? 1 : 0].name;
    for (const auto& x : t) line(name, x, "");
    std::stable_sort(t.begin(), t.end(),
                     [](const auto& a, const auto& b) { return a.summary.median < b.summary.median; });
    for (const auto& x : t)
      if (settings_.table && x.name.rfind("cublaslt", 0) != 0) {
        settings_.table << gemm_key(p) << " " << (x.name[0] == '*' ? x.name.substr(1) : x.name) << " "
                        << 1e3 * x.summary.median << " " << peer / x.summary.median << std::endl;
        break;
      }
    std::printf("%s\n", name.c_str());
    int shown = 0;
    for (const auto& x : t) {
      const bool peer_row = x.name.rfind("cublaslt", 0) == 0;
      if (shown++ >= settings_.top && !peer_row && x.name != selected) continue;
      std::printf("  %8.2f us ±%.1f%% %7.1f TFLOP/s  %.3f  %s\n", 1e3 * x.summary.median,
                  100 * x.summary.spread(), p.flops() / x.summary.median / 1e9, peer / x.summary.median,
                  x.name.c_str());
    }
    std::fflush(stdout);
  }

  Settings settings_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  runtime::Device device_;
  RandomOperands random_;
  runtime::Buffer<std::uint8_t> flush_;
  std::unique_ptr<measure::CublasLt> lt_;
};

// ---------------------------------------------------------------- problems
std::vector<GemmProblem> group(const std::string& name) {
  std::vector<GemmProblem> out;
  const auto add = [&](std::uint64_t m, std::uint64_t n, std::uint64_t k, std::uint64_t batch = 1) {
    out.push_back({.type = DType::bf16, .trans_b = true, .m = m, .n = n, .k = k, .batch = batch});
  };
  const auto layers = [&](std::initializer_list<std::uint64_t> rows) {
    for (auto m : rows)
      for (auto [n, k] : {std::pair<std::uint64_t, std::uint64_t>{4096, 4096},
                          {14336, 4096},
                          {4096, 14336},
                          {28672, 8192},
                          {8192, 28672},
                          {151936, 4096}})
        add(m, n, k);
  };
  if (name == "square")
    for (std::uint64_t n : {256, 512, 1024, 2048, 4096, 8192, 16384}) add(n, n, n);
  if (name == "few") layers({1, 16, 64});
  if (name == "middle") layers({256, 1024});
  if (name == "many") layers({4096, 8192});
  if (name == "batched") add(512, 512, 512, 64);
  if (name == "misaligned") {
    add(4095, 4097, 4104), add(1000, 3001, 5003), add(127, 255, 8191), add(1000, 3000, 5000);
  }
  return out;
}

GemmProblem parse(std::string text) {
  GemmProblem p{.type = DType::bf16, .trans_b = true};
  if (text.rfind("f16:", 0) == 0) p.type = DType::f16, text.erase(0, 4);
  if (text.rfind("bf16:", 0) == 0) text.erase(0, 5);
  if (text.rfind("beta:", 0) == 0) p.beta = 1, text.erase(0, 5);
  std::uint64_t more = 0;
  if (text.rfind("pad", 0) == 0) {
    more = std::stoull(text.substr(3));
    text.erase(0, text.find(':') + 1);
  }
  if (text.size() > 3 && text[2] == ':')
    p.trans_a = text[0] == 't', p.trans_b = text[1] == 't', text.erase(0, 3);
  const auto sizes = text::split(text, 'x');
  if (sizes.size() < 3 || sizes.size() > 4)
    throw ArgumentError(text::cat("no problem: ", text, "; one is [f16:][beta:][pad8:][nt:]MxNxK[xBATCH]"));
  const auto size = [&](std::size_t i) { return std::stoull(std::string(sizes[i])); };
  p.m = size(0), p.n = size(1), p.k = size(2), p.batch = sizes.size() > 3 ? size(3) : 1;
  if (more)
    p.lda = (p.trans_a ? p.m : p.k) + more, p.ldb = (p.trans_b ? p.k : p.n) + more, p.ldc = p.n + more;
  return p;
}

}  // namespace

int main(int argc, char** argv) try {
  Settings s;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--rounds")
      s.rounds = std::atoi(value());
    else if (word == "--top")
      s.top = std::atoi(value());
    else if (word == "--algorithms")
      s.algorithms = std::atoi(value());
    else if (word == "--non-persistent")
      s.non_persistent = std::atoi(value());
    else if (word == "--families")
      s.families = std::atoi(value());
    else if (word == "--only")
      s.only = value();
    else if (word == "--rest")
      s.rest = std::atof(value());
    else if (word == "--both")
      s.both = true;
    else if (word == "--seconds")
      s.seconds = std::atof(value());
    else if (word == "--device")
      s.device = value();
    else if (word == "--wide")
      s.wide = true;
    else if (word == "--table")
      s.table.open(value());
    else if (word == "--all")
      s.all.open(value());
    else
      names.push_back(word);
  }
  Sweep sweep(std::move(s));
  for (const auto& n : names) {
    if (sweep.over()) {
      std::printf("%s and what follows: no time left\n", n.c_str());
      break;
    }
    if (n == "floor") {
      sweep.floor();
      continue;
    }
    const auto problems = group(n);
    if (problems.empty())
      sweep.run(parse(n));
    else
      for (const auto& p : problems) sweep.run(p);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
